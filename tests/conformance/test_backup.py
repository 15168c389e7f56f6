"""I38: a backup holds every job that was accepted before it, and a restored ledger refuses every
earlier lease."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlane.cli import app
from fairlane.errors import LedgerInUse, LedgerUnusable, SetupError, StaleLease
from fairlane.ledger.sqlite.backup import back_up, restore
from fairlane.model.service import Fairness, Overrun, Service
from fairlane.model.state import State
from tests.core import core_of
from tests.world import World, catalog

pytestmark = pytest.mark.embedded

STRICT = Service("work", limit=2, overrun=Overrun.STRICT, fairness=Fairness.NONE, timeout=60)


def queue(tmp_path: Path, *services: Service) -> World:
    return World(catalog(*services), tmp_path / "data" / "ledger.db")


async def test_a_backup_of_a_ledger_in_use_holds_every_accepted_job(tmp_path: Path) -> None:
    async with queue(tmp_path) as world:
        accepted = [await world.submit() for _ in range(50)]
        made = back_up(world.path, tmp_path / "copy.db")
        later = await world.submit()
    assert made.jobs == 50
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600

    done = restore(tmp_path / "copy.db", world.path)
    assert (done.jobs, done.missing) == (50, 1)
    async with queue(tmp_path) as world:
        for job in accepted:
            assert (await world.job(job)).state is State.QUEUED
        assert await world.drain() == 50
        await world.healthy()
    assert done.kept is not None
    async with World(catalog(), done.kept) as before:
        assert (await before.job(later)).state is State.QUEUED


async def test_results_of_earlier_leases_are_refused(tmp_path: Path) -> None:
    """A lease that the backup holds, one that began after it, and one of a job it does not hold."""
    async with queue(tmp_path, STRICT) as world:
        await world.submit()
        await world.submit()
        known = await world.claim_one()
        back_up(world.path, tmp_path / "copy.db")
        begun_later = await world.claim_one()
        await world.engine.complete(known)
        await world.submit()
        unknown = await world.claim_one()

    assert restore(tmp_path / "copy.db", world.path).leases == 1
    async with queue(tmp_path, STRICT) as world:
        for lease in (known, begun_later, unknown):
            with pytest.raises(StaleLease):
                await world.engine.complete(lease)
        assert (await world.job(known.job)).state is State.RUNNING
        (slot,) = await core_of(world.engine).ledger.slots()  # the old call may still run
        assert slot.token != known.token
        await world.pass_time(61)
        assert await world.drain() == 2
        await world.healthy()


async def test_a_repeated_result_that_the_backup_holds_is_answered_as_before(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path) as world:
        await world.submit()
        lease = await world.claim_one()
        await world.engine.complete(lease)
        back_up(world.path, tmp_path / "copy.db")
    restore(tmp_path / "copy.db", world.path)
    async with queue(tmp_path) as world:
        await world.engine.complete(lease)
        assert (await world.job(lease.job)).state is State.COMPLETED


async def test_a_ledger_in_use_is_not_replaced(tmp_path: Path) -> None:
    async with queue(tmp_path) as world:
        job = await world.submit()
        back_up(world.path, tmp_path / "copy.db")
        with pytest.raises(LedgerInUse):
            restore(tmp_path / "copy.db", world.path)
        assert (await world.job(job)).state is State.QUEUED


async def killed(tmp_path: Path) -> Path:
    """A ledger as a killed process leaves it, with its log, and a backup of its first 200 jobs."""
    async with queue(tmp_path) as world:
        for _ in range(200):
            await world.submit()
        back_up(world.path, tmp_path / "copy.db")
        with closing(sqlite3.connect(world.path)) as beside:
            beside.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for _ in range(50):
            await world.submit()
        shutil.copytree(world.path.parent, tmp_path / "killed")
    found = tmp_path / "killed" / world.path.name
    assert found.with_name("ledger.db-wal").stat().st_size > 0
    return found


async def restored_jobs(ledger: Path) -> int:
    async with World(catalog(), ledger) as world:
        await world.healthy()
        return await world.drain()


async def test_the_log_of_a_ledger_that_was_moved_away_is_not_applied(tmp_path: Path) -> None:
    ledger = await killed(tmp_path)
    ledger.rename(tmp_path / "moved.db")
    assert restore(tmp_path / "copy.db", ledger).kept is None
    assert await restored_jobs(ledger) == 200


async def test_a_damaged_ledger_is_replaced_and_kept(tmp_path: Path) -> None:
    async with queue(tmp_path) as world:
        await world.submit()
    back_up(world.path, tmp_path / "copy.db")
    world.path.write_bytes(damaged := b"no database" + world.path.read_bytes()[11:])
    done = restore(tmp_path / "copy.db", world.path)
    assert done.kept is not None
    assert done.kept.read_bytes() == damaged
    assert await restored_jobs(world.path) == 1


async def test_what_is_no_backup_is_refused_and_the_ledger_stays(tmp_path: Path) -> None:
    async with queue(tmp_path) as world:
        job = await world.submit()
    good = tmp_path / "good.db"
    back_up(world.path, good)
    cut, text = tmp_path / "cut.db", tmp_path / "text.db"
    cut.write_bytes(good.read_bytes()[: 3 * 4096 + 100])
    text.write_text("no database at all, only some text that is long enough to be looked at" * 9)
    for broken in (cut, text):
        with pytest.raises(LedgerUnusable):
            restore(broken, world.path)
    with pytest.raises(SetupError, match="there is no backup"):
        restore(tmp_path / "nothing.db", world.path)
    assert sorted(each.name for each in world.path.parent.iterdir()) == [
        "ledger.db",
        "ledger.db.lock",
    ]
    async with queue(tmp_path) as world:
        assert (await world.job(job)).state is State.QUEUED


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    world = queue(tmp_path)

    async def one_job() -> None:
        async with world:
            await world.submit()

    asyncio.run(one_job())
    runner, data = CliRunner(), ["--data", str(world.path.parent)]
    target = str(tmp_path / "copy.db")
    made = runner.invoke(app, ["backup", target, *data])
    assert made.exit_code == 0
    assert "1 jobs" in made.output
    again = runner.invoke(app, ["backup", target, *data])
    assert again.exit_code != 0
    assert "exists already" in again.output
    done = runner.invoke(app, ["restore", target, *data])
    assert done.exit_code == 0
    assert "restored 1 jobs" in done.output
    assert "before-restore-1" in done.output
    none = runner.invoke(app, ["restore", *data])
    assert none.exit_code != 0
    assert "fairlane restore FILE" in none.output
