"""Events over HTTP: replayed and live, by SSE and WebSocket, without a gap."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from fairlane.api.auth.roles import DEVELOPER
from fairlane.api.routes.websocket import listen
from fairlane.clock import seconds
from fairlane.model.attempt import Fault
from fairlane.model.key import Role
from fairlane.model.worker import Worker
from tests.api.server import Gateway, gateway
from tests.core import core_of
from tests.world import World


async def heard(socket: ClientConnection) -> AsyncIterator[dict[str, Any]]:
    with suppress(ConnectionClosed):
        while True:
            yield json.loads(await socket.recv())


async def sse(answer: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields
            fields = {}


@pytest.mark.every_store
async def test_a_socket_tells_what_was_and_what_comes(world: World, served: Gateway) -> None:
    job = await world.submit("both", user="ada")
    async with connect(f"ws://127.0.0.1:{served.port}/ws/{job}") as socket:
        first = json.loads(await socket.recv())
        assert (first["seq"], first["type"]) == (1, "WAITING")
        assert first["message"] == "Waiting for first (1/2)"
        place = json.loads(await socket.recv())
        assert (place["type"], place["data"]["position"]) == ("POSITION", 1)
        lease = await world.claim_one()
        await world.engine.progress(lease, 40, "drawing")
        await world.engine.complete(lease)
        await world.engine.complete(await world.claim_one())
        told = [each async for each in heard(socket)]
        assert socket.close_code == 1000
    numbered = [each for each in told if "seq" in each]
    assert [each["seq"] for each in numbered] == list(range(2, 2 + len(numbered)))
    assert numbered[-1]["type"] == "JOB_COMPLETE"
    assert numbered[0]["data"]["service"] == "first"


@pytest.mark.every_store
async def test_progress_is_told_to_who_listens_and_who_comes_late(
    world: World, served: Gateway
) -> None:
    job = await world.submit()
    lease = await world.claim_one()
    await world.engine.progress(lease, 40, "drawing")
    async with connect(f"ws://127.0.0.1:{served.port}/ws/{job}?after=2") as socket:
        late = json.loads(await socket.recv())
        assert late == {
            "type": "PROGRESS",
            "job_id": job,
            "data": {"percent": 40.0, "text": "drawing"},
        }
        world.clock.advance(seconds(1))
        await world.engine.progress(lease, 60, "colours")
        assert json.loads(await socket.recv())["data"]["percent"] == 60


@pytest.mark.every_store
async def test_server_sent_events_go_on_after_the_last_one_seen(
    world: World, served: Gateway
) -> None:
    job = await world.submit()
    await world.engine.complete(await world.claim_one())
    path = f"/api/v1/jobs/{job}/events"
    async with served.client() as client:
        listed = (await client.get(path)).json()
        assert [each["seq"] for each in listed] == [1, 2, 3, 4]
        assert [each["seq"] for each in (await client.get(f"{path}?after=3")).json()] == [4]
        for headers, query, first in (
            ({}, "", 1),
            ({"Last-Event-ID": "2"}, "", 3),
            ({}, "?after=3", 4),
            ({"Last-Event-ID": "9" * 5_000}, "", 1),
        ):
            accept = {"Accept": "text/event-stream", **headers}
            async with client.stream("GET", path + query, headers=accept) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                assert answer.headers["x-accel-buffering"] == "no"
                told = [each async for each in sse(answer) if "id" in each]
            assert [int(each["id"]) for each in told] == list(range(first, 5))
            assert json.loads(told[-1]["data"]) == listed[-1]


@pytest.mark.every_store
async def test_no_listener_misses_or_repeats_an_event(world: World, served: Gateway) -> None:
    """I25: 32 writers move jobs while 50 listeners connect, are cut and come back."""
    engine = world.engine
    jobs = [await world.submit("scarce" if i % 4 == 0 else "both") for i in range(32)]
    complete: dict[tuple[int, str], list[int]] = {}
    all_listen = asyncio.Event()

    async def listener(number: int, job: str) -> None:
        seen: list[int] = complete.setdefault((number, job), [])
        ended = False
        while not ended:
            url = f"ws://127.0.0.1:{served.port}/ws/{job}?after={seen[-1] if seen else 0}"
            async with connect(url) as socket:
                async for each in heard(socket):
                    if "seq" not in each:
                        continue
                    seen.append(each["seq"])
                    if len(complete) == 50 and all(complete.values()):
                        all_listen.set()  # what comes now comes live
                    ended = each["type"] in ("JOB_COMPLETE", "JOB_FAILED", "JOB_CANCELLED")
                    if (each["seq"] + number) % 3 == 0 and not ended:
                        break  # cut
                ended = ended or socket.close_code == 1000

    listeners = [asyncio.create_task(listener(i, jobs[i % 32])) for i in range(50)]
    async with asyncio.timeout(30):
        await all_listen.wait()
    await asyncio.gather(*(writer(world, i) for i in range(32)))
    async with asyncio.timeout(30):
        await asyncio.gather(*listeners)
    for (_, job), seen in complete.items():
        stored = [event.seq for event in await core_of(engine).ledger.events(job, 0)]
        assert seen == stored == list(range(1, len(stored) + 1))


async def writer(world: World, number: int) -> None:
    """Moves jobs in all ways until none is left."""
    engine, worker = world.engine, Worker(f"w{number}", region="EU")
    while await world.live():
        leases = await engine.claim(worker, 2)
        for lease in leases:
            if lease.fence == 1 and number % 3 == 0:
                await engine.give_back(lease)
            elif lease.fence <= 2 and number % 5 == 0 and lease.service != "scarce":
                await engine.fail(lease, Fault.TRANSIENT)
            else:
                await engine.complete(lease)
        if not leases:
            world.clock.advance(seconds(3))


@pytest.mark.every_store
async def test_another_process_is_heard_too(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody rings here for what happens there: the sweeps look at a ledger that is shared."""
    job = await world.submit()
    async with connect(f"ws://127.0.0.1:{served.port}/ws/{job}") as socket:
        assert json.loads(await socket.recv())["seq"] == 1
        if core_of(world.engine).ledger.shared:
            monkeypatch.setattr(core_of(world.engine).subscriptions, "tell", lambda _: None)
        await world.engine.cancel(job)
        monkeypatch.undo()
        await world.engine.sweep()
        told = [each["type"] async for each in heard(socket) if "seq" in each]
        assert told == ["JOB_CANCELLED"]


# --- tickets -------------------------------------------------------------------------------------
@pytest.mark.every_store
async def test_a_ticket_is_good_once_for_one_job(world: World, served: Gateway) -> None:
    key = await served.key()
    async with served.client(key) as client:
        jobs = [
            (await client.post("/api/v1/jobs", json={"service": "work"})).json()["job_id"]
            for _ in range(2)
        ]

        async def ticket() -> str:
            answer = await client.post(f"/api/v1/jobs/{jobs[0]}/ticket")
            assert answer.json()["expires_at"].endswith("Z")
            return str(answer.json()["ticket"])

        good = await ticket()
        url = f"ws://127.0.0.1:{served.port}/ws/{jobs[0]}?ticket="
        async with connect(url + good) as socket:
            assert json.loads(await socket.recv())["seq"] == 1
        for wrong in (good, good[:-2], "x", ""):
            assert await refused(url + wrong) == 401
        async with connect(url.replace(jobs[0], jobs[1]) + await ticket()) as socket:
            await socket.wait_closed()
            assert socket.close_code == 4404
        old = await ticket()
        world.clock.advance(seconds(31))
        assert await refused(url + old) == 401
    async with served.client() as browser:
        async with served.client(key) as client:
            one = (await client.post(f"/api/v1/jobs/{jobs[0]}/ticket")).json()["ticket"]
            two = (await client.post(f"/api/v1/jobs/{jobs[0]}/ticket")).json()["ticket"]
        listed = await browser.get(f"/api/v1/jobs/{jobs[0]}/events?ticket={one}")
        assert listed.status_code == 200
        assert (await browser.get(f"/api/v1/jobs?ticket={two}")).status_code == 403


async def refused(url: str, **more: Any) -> int:
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, **more)
    return int(caught.value.response.status_code)


async def test_a_foreign_page_opens_no_socket(world: World, served: Gateway) -> None:
    """S10"""
    job = await world.submit()
    url = f"ws://127.0.0.1:{served.port}/ws/{job}"
    assert await refused(url, origin="https://evil.example") == 403
    async with connect(url, origin=served.url) as socket:  # type: ignore[arg-type]
        assert json.loads(await socket.recv())["seq"] == 1


async def test_a_socket_closes_when_its_key_no_longer_holds(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S10: 4401 within a minute."""
    monkeypatch.setattr("fairlane.api.routes.websocket.KEEP_ALIVE_SECONDS", 0.05)
    monkeypatch.setattr("fairlane.api.auth.key_cache.KEY_CACHE_SECONDS", 0)
    key, admin = await served.key(), await served.key(Role.ADMIN)
    async with served.client(key) as client:
        job = (await client.post("/api/v1/jobs", json={"service": "work"})).json()["job_id"]
    headers = {"Authorization": f"Bearer {key}"}
    url = f"ws://127.0.0.1:{served.port}/ws/{job}"
    async with connect(url, additional_headers=headers) as socket, served.client(admin) as client:
        await client.delete(f"/admin/keys/{key.partition('.')[0]}")
        await socket.wait_closed()
        assert socket.close_code == 4401


async def test_a_busy_socket_closes_too_when_its_key_no_longer_holds(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that hears something all the time is asked for its key, too."""
    monkeypatch.setattr("fairlane.api.routes.websocket.KEEP_ALIVE_SECONDS", 0.5)
    monkeypatch.setattr("fairlane.api.auth.key_cache.KEY_CACHE_SECONDS", 0)
    key, admin = await served.key(), await served.key(Role.ADMIN)
    async with served.client(key) as client:
        job = (await client.post("/api/v1/jobs", json={"service": "work"})).json()["job_id"]
    lease = await world.claim_one()
    url = f"ws://127.0.0.1:{served.port}/ws/{job}"
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(url, additional_headers=headers) as socket, served.client(admin) as client:
        await client.delete(f"/admin/keys/{key.partition('.')[0]}")
        number = 0
        async for _ in heard(socket):
            number += 1  # always something else: each answer is news
            assert number < 5_000
            await world.engine.progress(lease, 10, str(number))
        assert socket.close_code == 4401


async def test_a_message_that_is_too_long_closes_the_socket(world: World, served: Gateway) -> None:
    """S10"""
    job = await world.submit()
    async with connect(f"ws://127.0.0.1:{served.port}/ws/{job}") as socket:
        await socket.send("x" * 70_000)
        await socket.wait_closed()
        assert socket.close_code == 1009


async def test_a_message_that_is_no_text_closes_the_socket(world: World, served: Gateway) -> None:
    job = await world.submit()
    async with connect(f"ws://127.0.0.1:{served.port}/ws/{job}") as socket:
        await socket.send("anything")
        await socket.send(b"not text")
        await socket.wait_closed()
        assert socket.close_code == 1003


async def test_a_listener_that_reads_nothing_is_sent_away(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S10: 1013. Here what the server below would do is said by hand: it takes no more."""
    monkeypatch.setattr("fairlane.api.routes.websocket.SEND_TIMEOUT_SECONDS", 0.01)
    sent: list[Any] = []
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not sent:
            return {"type": "websocket.connect"}
        await left.wait()
        return {"type": "websocket.disconnect", "code": 1013}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "websocket.send":
            await asyncio.Event().wait()
        if message["type"] == "websocket.close":
            left.set()

    scope = {
        "type": "websocket",
        "headers": [],
        "query_string": b"",
        "path_params": {"job_id": await world.submit()},
        "app_context": served.app.app_context,
        "identity": DEVELOPER,
    }
    await listen(WebSocket(scope, receive, send))
    assert [each["type"].partition(".")[2] for each in sent] == ["accept", "send", "close"]
    assert sent[-1]["code"] == 1013


async def test_listeners_are_told_to_come_back_when_it_leaves(world: World) -> None:
    job = await world.submit()
    async with gateway(world.engine) as served:
        socket = await connect(f"ws://127.0.0.1:{served.port}/ws/{job}")
        await socket.recv()
        async with served.client() as client:
            served.app.app_context.drain()
            leaving = await client.get("/readyz")
            assert (leaving.status_code, leaving.headers["retry-after"]) == (503, "1")
            assert (await client.get("/livez")).status_code == 200
        await socket.wait_closed()
        assert socket.close_code == 1012
