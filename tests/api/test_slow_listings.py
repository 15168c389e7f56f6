"""S24: who asks for too much is told so, and everybody else goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from fairlane.model.attempt import Fault
from tests import stores
from tests.api.server import Gateway
from tests.world import World

ENDLESS = """
ALTER TABLE jobs RENAME TO some;
CREATE VIEW jobs AS SELECT rowid AS rowid, * FROM some
WHERE (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n) > 0;
"""
AS_BEFORE = "DROP VIEW jobs; ALTER TABLE some RENAME TO jobs;"


@asynccontextmanager
async def endless(world: World) -> AsyncIterator[None]:
    """Whoever looks through all jobs never gets to the end."""
    if isinstance(stores.present, stores.PostgresAndMemory):
        holder = await asyncpg.connect(await stores.present.database(world.path))
        async with holder.transaction():
            await holder.execute("LOCK TABLE fairlane.jobs")
            yield
        await holder.close()
        return
    file = sqlite3.connect(world.path)
    file.executescript(ENDLESS)
    yield
    file.executescript(AS_BEFORE)
    file.close()


@pytest.mark.every_store
@pytest.mark.parametrize("path", ["/api/v1/jobs", "/admin/queue-dead", "/admin/runtime/stats"])
async def test_a_listing_that_takes_too_long_is_given_up(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    await world.submit("scarce")
    await world.engine.fail(await world.claim_one(), Fault.TRANSIENT, "the only try")
    async with served.client() as client:
        assert (await client.get(path)).status_code == 200
        for store in ("sqlite", "postgres"):
            monkeypatch.setattr(
                f"fairlane.ledger.{store}.read_connection.QUERY_TIMEOUT_SECONDS", 0.05
            )
        async with endless(world):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "took_too_long")
            assert answer.headers["retry-after"] == "1"
            assert (await client.get("/admin/keys")).status_code == 200, "others are served"
        monkeypatch.undo()
        assert (await client.get(path)).status_code == 200
