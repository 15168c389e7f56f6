"""Bulk actions: the preview changes nothing, and the execution leaves changed jobs alone."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import orjson
import pytest

from fairlane.api.bulk_actions import INTERRUPTED_MICROSECONDS, RECORD_MICROSECONDS, BulkActions
from fairlane.clock import seconds
from fairlane.engine.submit import Caller
from fairlane.ledger.bulk_actions import BulkRow
from fairlane.ledger.messages import Filter
from fairlane.model.attempt import Fault
from fairlane.model.key import Role
from fairlane.model.state import State
from tests.api.server import Gateway
from tests.world import World

ACME = Caller("acme", "k")


async def ended(client: httpx2.AsyncClient, bulk: str) -> dict[str, Any]:
    while True:
        found: dict[str, Any] = (await client.get(f"/admin/bulk/{bulk}")).json()
        if found["status"] == "done":
            return found


@pytest.mark.every_store
async def test_a_bulk_cancel_does_what_its_preview_said(world: World, served: Gateway) -> None:
    """S25: with an entry in the audit log at its begin and at its end."""
    waiting = [await world.submit("scarce", ACME, user=f"u{n}", tier="low") for n in range(5)]
    kept = await world.submit("scarce", ACME, user="ada", tier="high")
    foreign = await world.submit("scarce", Caller("other", "k"), tier="low")
    over = await world.submit("work", ACME, tier="low")
    await world.engine.cancel(over)
    async with served.client(await served.key(Role.ADMIN)) as client:
        body = {"action": "cancel", "filter": {"tier": "low"}}
        found = (await client.post("/admin/bulk/preview", json=body)).json()
        assert (found["count"], found["exact"], found["by_state"]) == (5, True, {"queued": 5})
        assert {each["job_id"] for each in found["sample"]} == {*waiting}
        assert found["left_out"] == [{"reason": "already cancelled", "count": 1}]
        assert (await world.job(waiting[0])).state is State.QUEUED, "a preview changes nothing"
        lease = await world.claim_one()
        await world.engine.complete(lease)
        lease = await world.claim_one()
        assert lease.job in waiting, "this one changes after the preview"
        bulk = found["bulk_id"]
        assert (await client.post(f"/admin/bulk/{bulk}")).status_code == 202
        assert (await client.post(f"/admin/bulk/{bulk}")).status_code == 202
        status = await ended(client, bulk)
        assert (status["done"], status["changed"], status["skipped"]) == (4, 1, 0)
        changes = (await client.get("/admin/audit")).json()["changes"]
    said = [each for each in changes if each["target"] == f"bulk {bulk}"]
    assert [each["action"] for each in said] == ["bulk cancel ended", "bulk cancel began"]
    for job in waiting:
        expected = State.RUNNING if job == lease.job else State.CANCELLED
        assert (await world.job(job)).state is expected
    assert (await world.job(kept)).state is State.COMPLETED
    assert (await world.job(foreign)).state is State.QUEUED


@pytest.mark.every_store
async def test_dead_letters_are_replayed_or_purged_in_bulk(world: World, served: Gateway) -> None:
    jobs = []
    for _ in range(3):
        jobs.append(await world.submit("scarce", ACME))
        await world.engine.fail(await world.claim_one(), Fault.TRANSIENT, "broken")
    assert {(await world.job(job)).state for job in jobs} == {State.DEAD}
    async with served.client(await served.key(Role.ADMIN)) as client:
        for action, count in (("replay", 3), ("purge", 0)):
            body = {"action": action, "filter": {"status": ["dead"]}}
            found = (await client.post("/admin/bulk/preview", json=body)).json()
            assert found["count"] == count
            await client.post(f"/admin/bulk/{found['bulk_id']}")
            assert (await ended(client, found["bulk_id"]))["done"] == count
    assert {(await world.job(job)).state for job in jobs} == {State.QUEUED}


async def test_a_preview_is_valid_for_five_minutes_and_for_its_tenant(
    world: World, served: Gateway
) -> None:
    job = await world.submit("scarce", ACME)
    key, other = await served.key(Role.ADMIN), await served.key(Role.ADMIN, "other")
    async with served.client(key) as client, served.client(other) as foreign:
        body = {"action": "cancel", "filter": {}}
        bulk = (await client.post("/admin/bulk/preview", json=body)).json()["bulk_id"]
        assert (await foreign.post(f"/admin/bulk/{bulk}")).status_code == 404
        assert (await foreign.get(f"/admin/bulk/{bulk}")).status_code == 404
        world.clock.advance(seconds(300))
        assert (await client.post(f"/admin/bulk/{bulk}")).status_code == 404
    assert (await world.job(job)).state is State.QUEUED


@pytest.mark.every_store
async def test_a_bulk_action_of_a_dead_server_is_interrupted_and_can_be_previewed_again(
    world: World, served: Gateway
) -> None:
    """S25: the row is what a server leaves that was killed after two of five jobs."""
    jobs = [await world.submit("scarce", ACME, user=f"u{n}") for n in range(5)]
    async with served.client(await served.key(Role.ADMIN)) as client:
        body = {"action": "cancel", "filter": {"status": ["queued"]}}
        bulk = (await client.post("/admin/bulk/preview", json=body)).json()["bulk_id"]
        for job in jobs[:2]:
            await world.engine.cancel(job, "acme")
        await left_running(world, bulk, done=2)
        world.clock.advance(INTERRUPTED_MICROSECONDS - 1)
        assert (await client.get(f"/admin/bulk/{bulk}")).json()["status"] == "running"
        world.clock.advance(1)
        for _ in range(2):
            found = (await client.get(f"/admin/bulk/{bulk}")).json()
            assert (found["status"], found["done"], found["count"]) == ("interrupted", 2, 5)
        assert (await client.post(f"/admin/bulk/{bulk}")).json()["status"] == "interrupted"
        changes = (await client.get("/admin/audit")).json()["changes"]
        said = [each["action"] for each in changes if each["target"] == f"bulk {bulk}"]
        assert said == ["bulk cancel interrupted"]
        again = (await client.post("/admin/bulk/preview", json=body)).json()
        assert again["count"] == 3
        await client.post(f"/admin/bulk/{again['bulk_id']}")
        assert (await ended(client, again["bulk_id"]))["done"] == 3


@pytest.mark.every_store
async def test_a_slow_server_stops_a_bulk_action_that_was_marked_as_interrupted(
    world: World, served: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The server stands still for a minute after it cancelled a job, and another process looks."""
    for n in range(5):
        await world.submit("scarce", ACME, user=f"u{n}")
    engine = served.engine
    actions, other = BulkActions(engine), BulkActions(engine)
    cancel = engine.cancel

    async def slow(*given: Any) -> None:
        await cancel(*given)
        world.clock.advance(seconds(60))
        assert (await other.get(bulk, "acme")).status == "interrupted"

    bulk = (await actions.preview("cancel", Filter("acme"), "ada")).id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "cancel", slow)
        await actions.confirm(bulk, "acme")
        while "a bulk action" not in caplog.text:
            await other.get(bulk, "acme")
    assert "a bulk action was interrupted" in caplog.text
    assert (await other.get(bulk, "acme")).status == "interrupted"
    left = await other.preview("cancel", Filter("acme"), "ada")
    assert len(left.jobs) == 4, "the next heartbeat found the mark"


@pytest.mark.every_store
async def test_a_server_that_shuts_down_interrupts_its_bulk_actions(
    world: World, served: Gateway
) -> None:
    await world.submit("scarce", ACME)
    engine, begun = served.engine, asyncio.Event()
    actions = BulkActions(engine)

    async def endless(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    bulk = (await actions.preview("cancel", Filter("acme"), "ada")).id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "cancel", endless)
        await actions.confirm(bulk, "acme")
        await begun.wait()
        await actions.stop()
    assert (await actions.get(bulk, "acme")).status == "interrupted"


async def left_running(world: World, bulk: str, done: int) -> None:
    """Writes the row as a server writes it that runs the action now."""
    records, now = world.engine.bulk_records, world.clock.now()
    found = await records.get(bulk, "acme")
    assert found is not None
    until, text = found
    body = {**orjson.loads(text), "status": "running", "done": done}
    row = BulkRow(bulk, "acme", now + RECORD_MICROSECONDS, orjson.dumps(body).decode(), now, until)
    assert await records.put(row)
    assert not await records.put(row._replace(until=row.until + 1)), "it replaces no later version"
