"""After a restore of PostgreSQL: every earlier lease is refused, and the index is built anew."""

from __future__ import annotations

from fairlane.ids import token
from fairlane.ledger.messages import Stamp
from fairlane.ledger.postgres.connect import connect
from fairlane.ledger.postgres.migrate import migrate
from fairlane.ledger.postgres.process_lock import ProcessLock
from fairlane.ledger.postgres.silent_connections import WatchedConnections


async def refuse_earlier_leases(url: str) -> int:
    """Give every lease a token that no worker knows, and the index a new generation. No other
    process may use the database. Returns the number of leases."""
    watched = WatchedConnections()
    pool = await connect(url, most=1, watched=watched)
    lock: ProcessLock | None = None
    try:
        lock = await ProcessLock.taken(url, alone=True, watched=watched)
        await migrate(pool)
        async with pool.acquire() as connection, connection.transaction():
            held = await connection.fetch("SELECT token FROM jobs WHERE token IS NOT NULL")
            slots = await connection.fetch("SELECT DISTINCT token FROM slots")
            changes = [(old, token()) for old in {row["token"] for row in [*held, *slots]}]
            await connection.executemany("UPDATE jobs SET token = $2 WHERE token = $1", changes)
            await connection.executemany("UPDATE slots SET token = $2 WHERE token = $1", changes)
            epoch = await connection.fetchval("SELECT value FROM meta WHERE name = 'epoch'")
            fresh = str(Stamp.parse(epoch)._replace(life=token()))
            await connection.execute("UPDATE meta SET value = $1 WHERE name = 'epoch'", fresh)
            return len(held)
    finally:
        if lock is not None:
            await lock.close()
        pool.terminate()
