"""Records in the database when slots of services are granted and freed: a trigger writes down every
row that appears in the table `slots`, or leaves it, in the same transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg

CREATE = """
CREATE TABLE slot_log (
    id bigserial PRIMARY KEY,
    pool text NOT NULL,
    n bigint NOT NULL,
    taken boolean NOT NULL,
    at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp())
);
CREATE FUNCTION log_slot() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO slot_log (pool, n, taken) VALUES (OLD.pool, OLD.n, false);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO slot_log (pool, n, taken) VALUES (NEW.pool, NEW.n, true);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER log_slot AFTER INSERT OR DELETE OR UPDATE OF pool, n ON slots
FOR EACH ROW EXECUTE FUNCTION log_slot();
"""
READ = "SELECT pool, n, taken, at FROM slot_log WHERE pool LIKE 'svc:%' ORDER BY id"


class LoggedSlot(NamedTuple):
    service: str
    taken_at: float
    freed_at: float | None


@asynccontextmanager
async def ledger_connection(database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(
        database, timeout=5, server_settings={"search_path": "fairlane"}
    )
    try:
        yield connection
    finally:
        await connection.close()


async def start_slot_log(connection: asyncpg.Connection) -> None:
    await connection.execute(CREATE)


async def logged_slots(connection: asyncpg.Connection) -> AsyncIterator[LoggedSlot]:
    """Each time that a slot was taken. An insert waits for the end of a transaction that deletes
    the same row, so the times of one slot do not overlap."""
    open_since: dict[tuple[str, int], float] = {}
    for pool, n, taken, at in await connection.fetch(READ):
        if taken:
            open_since[pool, n] = at
        else:
            yield LoggedSlot(pool.removeprefix("svc:"), open_since.pop((pool, n)), at)
    for (pool, _), at in open_since.items():
        yield LoggedSlot(pool.removeprefix("svc:"), at, None)
