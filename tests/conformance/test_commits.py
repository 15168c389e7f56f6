"""What is accepted by an embedded queue is on the disk before anybody hears of it."""

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from tests.world import World, catalog

pytestmark = pytest.mark.embedded

SYNCHRONOUS_FULL = 2
"""How SQLite says that COMMIT returns after fsync."""


class Watched(sqlite3.Connection):
    """How durable each commit was."""

    commits: ClassVar[list[tuple[str, int]]] = []

    def execute(self, statement: str, *args: object) -> sqlite3.Cursor:
        if statement == "COMMIT":
            (journal,) = super().execute("PRAGMA journal_mode").fetchone()
            (synchronous,) = super().execute("PRAGMA synchronous").fetchone()
            Watched.commits.append((journal, synchronous))
        return super().execute(statement, *args)  # type: ignore[arg-type]


class Held(sqlite3.Connection):
    """A disk that writes when the test says so."""

    holding = False
    reached, free = threading.Event(), threading.Event()

    def execute(self, statement: str, *args: object) -> sqlite3.Cursor:
        if Held.holding and statement == "COMMIT":
            Held.reached.set()
            Held.free.wait()
        return super().execute(statement, *args)  # type: ignore[arg-type]


async def test_every_commit_waits_for_the_disk(tmp_path: Path) -> None:
    """I2: of a submit, a claim and a result."""
    Watched.commits.clear()
    async with World(catalog(), tmp_path / "ledger.db", connection=Watched) as world:
        await world.submit()
        await world.engine.complete(await world.claim_one())
    assert len(Watched.commits) >= 3
    assert set(Watched.commits) == {("wal", SYNCHRONOUS_FULL)}


async def test_a_submit_is_answered_after_its_commit(tmp_path: Path) -> None:
    """I2"""
    async with World(catalog(), tmp_path / "ledger.db", connection=Held) as world:
        Held.reached.clear()
        Held.free.clear()
        Held.holding = True
        try:
            submit = asyncio.create_task(world.submit())
            await asyncio.to_thread(Held.reached.wait)
            for _ in range(100):  # whatever was on its way arrives
                await asyncio.sleep(0)
            assert not submit.done()
        finally:
            Held.holding = False
            Held.free.set()
        assert (await world.job(await submit)).id
