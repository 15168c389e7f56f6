"""Who may call is kept with everything else, and changes of it are audited."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlane.engine.submit import Caller
from fairlane.errors import Expired, NotFound
from fairlane.ledger.sqlite.api_keys import BesideOwner
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Limits
from fairlane.model.key import Key, Role
from fairlane.model.service import Service
from fairlane.model.state import State
from tests.core import core_of
from tests.world import World, catalog

ADA = Key("ada", "acme", Role.CLIENT, "00ff", "laptop", created_at=5, expires_at=9)


async def test_a_key_is_kept_as_it_was_made_and_only_once(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        keys = core_of(world.engine).ledger.keys
        assert not await keys.any()
        assert await keys.add(ADA, "root")
        other = Key("ada", "other", Role.ADMIN, "11ee")
        assert not await keys.add(other, "root")
        await world.restart()
        keys = core_of(world.engine).ledger.keys
        assert await keys.get("ada") == ADA
        assert await keys.all() == [ADA]
        assert [sorted(await keys.names(most)) for most in (5, 0)] == [["ada"], []]
        assert await keys.any()
        assert await keys.get("nobody") is None
        (change,) = await world.engine.audit()
        assert (change.actor, change.action, change.target) == ("root", "add key", "ada")


async def test_the_same_key_may_be_added_again_and_changes_nothing(tmp_path: Path) -> None:
    """I6: whoever did not hear the answer asks again, perhaps after somebody has revoked it."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        keys = core_of(world.engine).ledger.keys
        assert await keys.add(ADA, "root")
        assert await keys.add(ADA, "root")
        await keys.revoke("ada", 7, "root")
        assert await keys.add(ADA, "root")
        found = await keys.get("ada")
        assert found is not None
        assert found.revoked_at == 7
        assert [change.action for change in await world.engine.audit()] == ["revoke key", "add key"]


async def test_a_revoked_key_stays_revoked_and_known(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        keys = core_of(world.engine).ledger.keys
        await keys.add(ADA, "root")
        assert await keys.revoke("ada", 7, "root")
        assert await keys.revoke("ada", 8, "root")
        assert not await keys.revoke("nobody", 7, "root")
        found = await keys.get("ada")
        assert found is not None
        assert found.revoked_at == 7
        assert not found.holds(7)
        assert [change.action for change in await world.engine.audit()] == ["revoke key", "add key"]


def test_a_key_holds_until_it_expires() -> None:
    assert ADA.holds(8)
    assert not ADA.holds(9)


async def test_the_secret_is_made_once_for_all(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        asked = await asyncio.gather(
            *(core_of(world.engine).ledger.keys.secret() for _ in range(8))
        )
        await world.restart()
        assert {*asked, await core_of(world.engine).ledger.keys.secret()} == {asked[0]}
        assert len(asked[0]) == 32


async def test_a_ticket_is_good_once(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        keys = core_of(world.engine).ledger.keys
        used = await asyncio.gather(*(keys.redeem("t", 20, 10) for _ in range(8)))
        assert sorted(used) == [False] * 7 + [True]
        assert await keys.redeem("u", 20, 10)


async def test_how_a_job_ended_is_told_to_its_own_tenant_only(tmp_path: Path) -> None:
    """S7: a foreign job that is gone looks like one that never was."""
    settings = catalog(limits=Limits(keep_finished=1))
    async with World(settings, tmp_path / "ledger.db") as world:
        job = await world.submit(caller=Caller("acme", "k"), idempotency_key="x")
        await world.engine.cancel(job)
        await world.pass_time(3601)
        await world.submit()  # what the outbox names stays; its row goes with the next transaction
        await world.pass_time(0, sweeps=10)
        with pytest.raises(Expired):
            await world.engine.get(job, "acme")
        with pytest.raises(NotFound):
            await world.engine.get(job, "acm")


async def test_only_dead_letters_of_the_tenant_are_purged(tmp_path: Path) -> None:
    async with World(catalog(Service("work", max_attempts=1)), tmp_path / "ledger.db") as world:
        jobs = [await world.submit(caller=Caller(name, "k")) for name in ("acme", "acme", "other")]
        for _ in jobs:
            await world.engine.fail(await world.claim_one(), Fault.TRANSIENT)
        live = await world.submit(caller=Caller("acme", "k"))
        assert await world.engine.purge([*jobs, live, "none"], "acme", "root") == 2
        assert await world.engine.count(State.DEAD) == 1
        assert await world.engine.count(State.QUEUED) == 1
        assert [change.target for change in await world.engine.audit()] == [jobs[1], jobs[0]]
        await world.healthy()


async def test_a_request_sent_again_with_another_trace_is_the_same_request(tmp_path: Path) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        first = await world.submit(idempotency_key="x", trace="a")
        assert await world.submit(idempotency_key="x", trace="b") == first


@pytest.mark.embedded
async def test_keys_are_changed_beside_the_process_that_owns_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.db"
    beside = BesideOwner(path)
    assert await beside.keys.add(ADA, "cli")
    async with World(catalog(), path) as world:
        assert await core_of(world.engine).ledger.keys.get("ada") == ADA
        again = BesideOwner(path)
        assert await again.keys.revoke("ada", 7, "cli")
        found = await core_of(world.engine).ledger.keys.get("ada")
        assert found is not None
        assert found.revoked_at == 7
        await again.close()
    await beside.close()
