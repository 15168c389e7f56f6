"""What administrators change, and what is kept of it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane.errors import (
    InsufficientCredits,
    InvalidInput,
    LedgerInUse,
    LedgerTooNew,
    Refused,
    SetupError,
    UnknownName,
)
from fairlane.ledger.sqlite import SqliteLedger
from fairlane.model.job import NewJob
from fairlane.model.service import Region, Service
from fairlane.model.worker import Worker
from tests.core import core_of
from tests.world import TIERS, World, catalog


async def test_a_users_own_quota_goes_before_the_tiers(tmp_path: Path) -> None:
    """I13: tighter or wider, until it is taken back."""
    tiers = type(TIERS)([replace(tier, pending=2) for tier in TIERS.all])
    async with World(catalog(tiers=tiers), tmp_path / "ledger.db") as world:
        await world.engine.set_quota("ada", pending=1)
        await world.submit(user="ada")
        with pytest.raises(Refused) as caught:
            await world.submit(user="ada")
        assert (caught.value.code, caught.value.limit) == ("too_many_pending", 1)
        await world.engine.set_quota("ada", pending=3)
        for _ in range(2):
            await world.submit(user="ada")
        await world.engine.set_quota("ada")
        with pytest.raises(Refused) as caught:
            await world.submit(user="ada")
        assert caught.value.limit == 2


async def test_a_users_own_quota_holds_where_the_tier_has_none(tmp_path: Path) -> None:
    """I13: users who are not counted otherwise."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.engine.set_quota("ada", pending=1)
        jobs = [NewJob("work", user=user) for user in ("ada", "bob", "ada", "bob")]
        found = await world.engine.submit_many(jobs)
        assert [isinstance(each, Refused) for each in found] == [False, False, True, False]


async def test_a_users_own_quota_holds_for_resumed_jobs_too(tmp_path: Path) -> None:
    """I13: tighter or wider than the tier's."""
    tiers = type(TIERS)([replace(tier, pending=2) for tier in TIERS.all])
    settings = catalog(Service("work", max_wait=60), tiers=tiers)
    async with World(settings, tmp_path / "ledger.db") as world:
        failed = [await world.submit(user="ada") for _ in range(2)]
        await world.pass_time(61)
        await world.engine.set_quota("ada", pending=1)
        await world.submit(user="ada")
        with pytest.raises(Refused) as caught:
            await world.engine.resume(failed[0])
        assert (caught.value.code, caught.value.limit) == ("too_many_pending", 1)
        await world.engine.set_quota("ada", pending=3)
        for job in failed:
            await world.engine.resume(job)
        await world.healthy()


async def test_every_change_is_kept_with_before_and_after(tmp_path: Path) -> None:
    async with World(catalog(Service("work", limit=1)), tmp_path / "ledger.db") as world:
        await world.engine.set_tier("ada", "low")
        await world.engine.set_tier("ada", "high")
        await world.engine.change("services", "work", "limit", 5)
        changes = await world.engine.audit()
        assert [(c.action, c.before, c.after) for c in changes] == [
            ("set", None, "5"),
            ("set tier", "low", "high"),
            ("set tier", None, "low"),
        ]


async def test_credits_that_are_given_or_taken_are_in_the_audit_once(tmp_path: Path) -> None:
    """S25: who, to whom, and what it was before; what changed nothing is not there."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        engine = world.engine
        for _ in range(2):
            await engine.add_credits("ada", 5, "gift", tenant="acme", actor="acme/boss")
        await engine.add_credits("ada", -2, "taken back", tenant="acme", actor="acme/boss")
        with pytest.raises(InsufficientCredits):
            await engine.add_credits("ada", -9, "too much", tenant="acme", actor="acme/boss")
        assert [change[1:] for change in await engine.audit()] == [
            ("acme/boss", "add credits", "acme/ada", "5", "3"),
            ("acme/boss", "add credits", "acme/ada", "0", "5"),
        ]


@pytest.mark.embedded
async def test_nobody_can_rewrite_the_audit_or_the_credits(tmp_path: Path) -> None:
    """I14: append-only is enforced by the ledger itself."""
    path = tmp_path / "ledger.db"
    async with World(catalog(), path) as world:
        await world.engine.set_tier("ada", "low")
        await world.engine.add_credits("ada", 5, "gift")
        with closing(sqlite3.connect(path)) as connection:
            for table in ("audit", "entries"):
                with pytest.raises(sqlite3.IntegrityError):
                    connection.execute(f"DELETE FROM {table}")  # noqa: S608


async def test_live_changes_last_until_the_file_says_otherwise(tmp_path: Path) -> None:
    settings = catalog(Service("a.b", limit=1))
    async with World(settings, tmp_path / "ledger.db") as world:
        for limit in (2, 3):
            await world.engine.change("services", "a.b", "limit", limit)
        await world.restart()
        assert core_of(world.engine).catalog.service("a.b").limit == 3
        world.settings = catalog(Service("a.b", limit=7))
        await world.restart()
        assert core_of(world.engine).catalog.service("a.b").limit == 7


async def test_a_setting_that_cannot_be_changed_is_refused_with_what_can(tmp_path: Path) -> None:
    async with World(catalog(Service("work", limit=1)), tmp_path / "ledger.db") as world:
        for kind, setting in (("service", "limit"), ("services", "timeout")):
            with pytest.raises(UnknownName):
                await world.engine.change(kind, "work", setting, 1)
        with pytest.raises(InvalidInput, match="a whole number"):
            await world.engine.change("services", "work", "limit", "2")
        with pytest.raises(InvalidInput, match="below 0"):
            await world.engine.change("services", "work", "limit", -1)


@pytest.mark.embedded
async def test_a_second_process_is_told_who_owns_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with World(catalog(), path):
        with pytest.raises(LedgerInUse, match="process"):
            await SqliteLedger.open(path)


@pytest.mark.embedded
async def test_a_ledger_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(LedgerTooNew):
        await SqliteLedger.open(path)


async def test_a_service_that_jobs_wait_for_cannot_be_removed_silently(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with World(catalog(), path) as world:
        await world.submit()
    gone = World(catalog(Service("other")), path)
    with pytest.raises(SetupError, match="work"):
        await gone.start()
    async with World(catalog(), path) as world:
        assert len(await world.claim()) == 1


async def test_one_job_with_too_many_different_needs_does_not_spoil_its_batch(
    tmp_path: Path,
) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        template = [f"need{n}" for n in range(70)]
        jobs = [_needing(need) for need in template] + [_needing("need0")]
        outcomes = await world.engine.submit_many(jobs)
        refused = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, InvalidInput)]
        assert refused == list(range(64, 70))


async def test_a_fan_out_over_too_many_regions_does_not_spoil_its_batch(tmp_path: Path) -> None:
    """Its cells stand in lanes of their own: all of them come in, or none does."""
    regions = [f"r{n}" for n in range(70)]
    settings = catalog(Service("work", regions={name: Region(name) for name in regions}))
    async with World(settings, tmp_path / "ledger.db") as world:
        outcomes = await world.engine.submit_many(
            [NewJob("work", matrix={"region": tuple(regions[:most])}) for most in (65, 64, 3)]
            + [NewJob("work", regions=(region,)) for region in regions[62:66]]
        )
        refused = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, InvalidInput)]
        assert refused == [0, 5, 6]
        assert len(await core_of(world.engine).index.lanes("work")) == 64


def _needing(capability: str) -> NewJob:
    return NewJob("work", capabilities=(capability,))


async def test_one_worker_may_wait_in_two_calls_at_once(tmp_path: Path) -> None:
    """A wake-up for one call is not lost on the other."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        worker = Worker("w")
        calls = [asyncio.create_task(world.engine.claim(worker, 1, wait=60)) for _ in range(2)]
        await asyncio.sleep(0)
        for _ in calls:
            await world.submit()
        leases = [lease for call in calls for lease in await call]
        assert len({lease.job for lease in leases}) == 2


async def test_results_that_are_not_json_are_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        await world.submit()
        lease = await world.claim_one()
        for bad in (object(), "nul \x00 byte"):
            with pytest.raises(InvalidInput):
                await world.engine.complete(lease, bad)
        await world.engine.complete(lease, "fine")
