"""The dashboard's WebSocket: frames and deltas, for administrators and for tenants."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from fairlane.api.app import App, create_app
from fairlane.config.settings import Settings
from fairlane.dashboard.audience import ADMINISTRATORS as ADMIN
from fairlane.dashboard.delta import Delta, applied
from fairlane.engine.submit import Caller
from fairlane.model.job import NewJob
from fairlane.model.key import Role
from fairlane.model.service import Fairness, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from fairlane.presets import tasks
from tests import stores
from tests.api.server import Gateway, gateway
from tests.api.test_workers import hand
from tests.world import World, catalog

Frame = dict[str, Any]


@asynccontextmanager
async def viewing(
    served: Gateway, key: str | None = None, query: str = "", **headers: str
) -> AsyncIterator[ClientConnection]:
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    url = f"ws://127.0.0.1:{served.port}/ws{query}"
    async with connect(url, additional_headers=headers, max_size=None) as socket:
        yield socket


async def heard(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await socket.recv())
    return found


async def whole(socket: ClientConnection) -> Frame:
    found: Frame = (await heard(socket))["full"]
    return found


async def shown(socket: ClientConnection, holds: Callable[[Frame], bool]) -> Frame:
    """The first frame for which this holds."""
    frame = await whole(socket)
    while not holds(frame):
        delta = await heard(socket)
        if "full" in delta:
            frame = delta["full"]
        elif "set" in delta:
            frame = applied(frame, Delta(delta["set"], delta["gone"]))
    return frame


@pytest.mark.every_store
async def test_a_viewer_gets_a_whole_frame_and_then_what_changes(
    world: World, served: Gateway
) -> None:
    await world.submit("scarce", user="ada")
    await world.submit("scarce", user="bob", tier="high")
    async with viewing(served) as socket:
        frame = await shown(socket, lambda frame: bool(frame["totals"]["waiting"] == 2))
        assert frame["audience"] == "admin"
        assert [each["user"] for each in frame["services"]["scarce"]["next"]] == ["bob", "ada"]
        lease = await world.claim_one(Worker("w"))
        while frame["services"]["scarce"]["running"] == 0:
            delta = await heard(socket)
            frame = applied(frame, Delta(delta["set"], delta["gone"]))
        (cell,) = frame["services"]["scarce"]["slots"]
        assert (cell["state"], cell["user"], cell["job"]) == ("running", "bob", lease.job)
        assert frame["services"]["scarce"]["tiers"]["high"]["waiting"] == 0
        assert frame["totals"]["slots_used"] == 1
        assert frame["totals"]["running"] == 1


@pytest.mark.every_store
async def test_two_viewers_of_an_audience_get_the_same_bytes(world: World, served: Gateway) -> None:
    await world.submit("scarce", user="ada")
    key, other = await served.key(Role.ADMIN), await served.key(Role.ADMIN, "other")
    async with viewing(served, key) as one, viewing(served, other) as two:
        await one.recv(), await two.recv()
        texts: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        for _ in range(3):
            for socket, seen in zip((one, two), texts, strict=True):
                text = await socket.recv()
                seen[json.loads(text)["n"]] = text
        both = texts[0].keys() & texts[1].keys()
        assert both
        assert all(texts[0][n] == texts[1][n] for n in both)


async def test_a_viewer_that_comes_back_gets_only_what_it_missed(served: Gateway) -> None:
    async with viewing(served) as socket:
        first = await heard(socket)
        last = await heard(socket)
        assert last["n"] > first["n"]
    async with viewing(served, query=f"?after={last['n']}") as socket:
        assert "set" in await heard(socket)
    async with viewing(served, query=f"?after={last['n'] - 1000}") as socket:
        assert "full" in await heard(socket)


# --- who may look --------------------------------------------------------------------------------
async def refused(served: Gateway, key: str | None, query: str = "", **headers: str) -> int:
    with pytest.raises(InvalidStatus) as caught:
        async with viewing(served, key, query, **headers):
            pass
    return caught.value.response.status_code


async def test_the_dashboard_needs_a_key_of_a_role_that_may_read(served: Gateway) -> None:
    """S10: refused before the upgrade."""
    worker = await served.key(Role.WORKER)
    assert await refused(served, None) == 401
    assert await refused(served, worker) == 403
    assert await refused(served, "fl0.wrongwrongwrongwrongwrongwrongwrong") == 401


async def test_a_page_of_another_origin_cannot_open_the_dashboard(served: Gateway) -> None:
    """S10: cross-site WebSocket hijacking."""
    key = await served.key(Role.ADMIN)
    assert await refused(served, key, Origin="http://evil.example") == 403
    async with viewing(served, key, Origin=served.url) as socket:
        await whole(socket)


async def test_a_revoked_key_closes_the_dashboard(
    served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.api.routes.dashboard.KEY_CHECK_SECONDS", 0.0)
    key = await served.key(Role.ADMIN)
    async with viewing(served, key) as socket:
        await socket.recv()
        name = key.partition(".")[0]
        assert await served.engine.api_keys.revoke(name, served.engine.clock.now(), "test")
        served.app.app_context.key_cache.forget(name)
        await socket.wait_closed()
        assert socket.close_code == 4401


CANARY = "canary-7f3a"


async def plant_canaries(world: World) -> None:
    """Put a canary into everything that another tenant can name."""
    foreign = Caller("foreign", f"key-{CANARY}")
    for n in range(3):
        job = NewJob(
            "scarce", user=f"user-{CANARY}-{n}", model=f"model-{CANARY}", input={"x": CANARY}
        )
        await world.engine.submit(job, foreign)
    await world.engine.submit(NewJob("scarce", input=CANARY), foreign)
    await world.claim_one(Worker("w"))


@pytest.mark.every_store
async def test_the_frame_of_a_tenant_names_nothing_of_another_tenant(
    world: World, served: Gateway
) -> None:
    """S7: user names, job ids, models and keys of others are in no message."""
    await plant_canaries(world)
    own = await world.submit("scarce", Caller("acme", "k"), user="ada")
    key = await served.key(Role.READ)
    await served.app.app_context.sampler.sample()
    async with viewing(served, key) as socket:
        await socket.send(json.dumps({"watch": "service:scarce"}))
        texts = [await socket.recv() for _ in range(4)]
    frame: Frame = json.loads(texts[0])["full"]
    assert frame["audience"] == "tenant"
    front = frame["services"]["scarce"]["next"]
    assert [each["user"] for each in front] == [None] * 3 + ["ada"]
    assert [each["job"] for each in front if each["job"]] == [own]
    (cell,) = frame["services"]["scarce"]["slots"]
    assert (cell["state"], cell["user"], cell["job"], cell["model"]) == ("running", *[None] * 3)
    foreign = (await world.engine.list_jobs()).jobs
    names = [CANARY, *(job.id for job in foreign if job.id != own)]
    for text in texts:
        assert not [name for name in names if name in str(text)]
    assert any("residency" in str(text) for text in texts), "the detail was looked at too"


async def test_an_administrator_sees_the_users_of_all_tenants(
    world: World, served: Gateway
) -> None:
    await plant_canaries(world)
    async with viewing(served, await served.key(Role.ADMIN)) as socket:
        frame = await shown(socket, lambda frame: bool(frame["totals"]["waiting"] == 3))
    users = [each["user"] for each in frame["services"]["scarce"]["next"]]
    assert f"user-{CANARY}-1" in users


async def test_a_worker_has_a_name_and_a_dead_one_holds_no_model(
    world: World, served: Gateway
) -> None:
    sample = served.app.app_context.sampler.sample
    async with hand(served, name="gpu-1", task_types=["work"], heartbeat_seconds=5) as worker:
        await worker.poll(1, model={"loaded": "flux"})
        await world.pass_time(6)  # workers are read every five seconds
        await sample()
        async with viewing(served) as socket:
            shown_as = (await whole(socket))["workers"][worker.id]
        assert (shown_as["name"], shown_as["models"]) == ("gpu-1", ["flux"])
        async with viewing(served, await served.key(Role.READ)) as socket:
            assert (await whole(socket))["workers"][worker.id]["name"] == worker.id
        await world.pass_time(60)
        await sample()
        async with viewing(served, await served.key(Role.ADMIN)) as socket:
            shown_as = (await whole(socket))["workers"][worker.id]
        assert (shown_as["state"], shown_as["models"]) == ("dead", [])


async def test_a_key_that_acts_alone_sees_only_its_own_jobs(world: World, served: Gateway) -> None:
    key = await served.key(Role.CLIENT, act_as=False)
    name = key.partition(".")[0]
    await world.submit("scarce", Caller("acme", "other"), user="ada")
    own = await world.submit("scarce", Caller("acme", name))
    async with viewing(served, key) as socket:
        frame = await shown(socket, lambda frame: bool(frame["totals"]["waiting"] == 2))
    front = frame["services"]["scarce"]["next"]
    assert [each["job"] for each in front] == [None, own]
    assert [each["user"] for each in front] == [None, f"key {name}"]


async def test_task_types_of_other_tenants_are_not_named(tmp_path: Path) -> None:
    where = stores.Embedded()
    async with World(tasks(), tmp_path / "ledger.db", where=where) as world:
        await world.submit(f"type-{CANARY}", Caller("foreign", "k"))
        await world.submit("mine", Caller("acme", "k"))
        frame = await seen_by_a_reader(world)
    assert [*frame["services"]] == ["mine"]


async def seen_by_a_reader(world: World) -> Frame:
    async with (
        gateway(world.engine) as served,
        viewing(served, await served.key(Role.READ)) as socket,
    ):
        return await shown(socket, lambda frame: bool(frame["services"]))


# --- what is shown -------------------------------------------------------------------------------
@pytest.mark.every_store
async def test_the_shares_within_the_target_are_those_of_the_waits(
    world: World, served: Gateway
) -> None:
    tiers = Tiers([Tier("high", target=10), Tier("low")])
    service = Service("work", limit=50, fairness=Fairness.NONE)
    settings = catalog(service, tiers=tiers)
    async with World(settings, world.path.with_name("targets.db")) as other:
        jobs = await other.submit_all([NewJob("work", tier="high") for _ in range(8)])
        for lease in await other.claim(2):
            await other.engine.complete(lease)
        await other.pass_time(11)
        for lease in await other.claim(6):
            await other.engine.complete(lease)
        assert len(jobs) == 8
        sampler = (await app_of(other)).app_context.sampler
        broadcast = await sampler.join(ADMIN)
        frame: Frame = json.loads(broadcast.full())["full"]
    tier = frame["tiers"][0]
    assert (tier["started"], tier["share_in_target"], tier["target_seconds"]) == (8, 0.25, 10)
    assert frame["tiers"][1]["share_in_target"] is None
    assert frame["services"]["work"]["tiers"]["high"]["p95"] == pytest.approx(11, rel=0.1)
    assert frame["totals"]["finished"] == 8


@pytest.mark.every_store
async def test_the_accuracy_shown_is_what_the_ledger_says_afterwards(
    world: World, served: Gateway
) -> None:
    settings = catalog(Service("work", limit=2))
    async with World(settings, world.path.with_name("accuracy.db")) as other:
        await other.engine.register(Worker("w"))
        told: dict[str, int] = {}
        for n in range(60):
            job = await other.submit("work", user=f"u{n % 7}", tier=("high", "low")[n % 2])
            here = await other.engine.standing(await other.job(job))
            assert here is not None
            assert here.eta is not None
            told[job] = other.clock.now() + here.eta.p90
            if n % 3 == 0:
                await run_one(other, 0.5 + n % 5)
        while await other.live():
            await run_one(other, 2.5)
        kept = 0
        for job, by in told.items():
            (attempt,) = await other.engine.attempts(job)
            kept += attempt.started_at <= by
        sampler = (await app_of(other)).app_context.sampler
        sampler.watch(ADMIN, "work")
        await sampler.join(ADMIN)
        await sampler.sample()
        detail = json.loads(sampler.detail(ADMIN, "work") or "")["data"]
    assert 0 < kept < 60, "some were right and some were not"
    assert detail["accuracy"] == {"estimates": 60, "held": round(kept / 60, 3)}


async def run_one(world: World, seconds: float) -> None:
    for lease in await world.claim(1):
        world.clock.advance(round(seconds * 1_000_000))
        await world.engine.complete(lease)


async def app_of(world: World) -> App:
    return await create_app(world.engine, Settings(world.settings))


@pytest.mark.parametrize("said", ["", "[]", "{", '{"watch": 1}', '{"watch": "job:x"}', "null"])
async def test_a_message_that_means_nothing_is_ignored(served: Gateway, said: str) -> None:
    async with viewing(served) as socket:
        await socket.send(said)
        await socket.recv()
        assert "set" in await heard(socket)


async def test_a_stopping_server_closes_the_dashboard(served: Gateway) -> None:
    async with viewing(served) as socket:
        await socket.recv()
        served.app.app_context.drain()
        await socket.wait_closed()
        assert socket.close_code == 1012
