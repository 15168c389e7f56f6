"""Epochs: the generation of the index and the version of the settings, agreed by all processes."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.ledger.messages import Stamp, Turn
from fairlane.ledger.postgres.read_connection import Connection
from fairlane.ledger.postgres.transaction import SETTINGS_LOCK, PostgresTransaction
from fairlane.ledger.requests import Extension, RebuildRequest

LOCK = "SELECT pg_advisory_xact_lock($1)"


async def meta(connection: Connection | PostgresTransaction, name: str) -> str:
    return str(await connection.fetchval("SELECT value FROM meta WHERE name = $1", name))


async def set_meta(tx: PostgresTransaction, **values: str) -> None:
    await tx.executemany("UPDATE meta SET value = $2 WHERE name = $1", [*values.items()])


async def stamp(connection: Connection | PostgresTransaction) -> Stamp:
    return Stamp.parse(await meta(connection, "epoch"))


TURN = """
SELECT epoch.value, turn.value FROM meta epoch, meta turn
WHERE epoch.name = 'epoch' AND turn.name = 'turn'
"""


async def turn(connection: Connection) -> tuple[Stamp, Turn]:
    ((epoch, text),) = await connection.fetch(TURN)
    return Stamp.parse(epoch), _parsed(text)


async def read_clock(connection: Connection) -> tuple[int, str]:
    """The server's wall clock in microseconds, and the correction that the processes have agreed
    on."""
    ((wall, agreed),) = await connection.fetch(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, value FROM meta "
        "WHERE name = 'clock'"
    )
    return wall, agreed


async def set_clock(tx: PostgresTransaction, items: Sequence[tuple[str, str]]) -> list[bool]:
    """Compare and swap: each item replaces one agreement by another, if the first is still
    stored."""
    statement = "UPDATE meta SET value = $2 WHERE name = 'clock' AND value = $1 RETURNING true"
    return [bool(await tx.fetchval(statement, old, new)) for old, new in items]


async def begin_rebuild(tx: PostgresTransaction, items: Sequence[RebuildRequest]) -> list[bool]:
    """Claims under the old generation of the index are either confirmed before or refused after. A
    repeated call whose response was lost is recognised by its `life`."""
    await tx.execute(LOCK, SETTINGS_LOCK)
    begun: list[bool] = []
    for item in items:
        now, number = await stamp(tx), _parsed(await meta(tx, "turn")).number
        begun.append(number == item.over or now.life == item.life)
        if begun[-1]:
            epoch = str(Stamp(item.life, now.settings))
            await set_meta(tx, epoch=epoch, turn=f"{number + 1}/busy")
    return begun


async def extend_rebuild(tx: PostgresTransaction, items: Sequence[Extension]) -> list[bool]:
    """Heartbeat of a rebuild, under the shared lock, so that no other rebuild begins in between."""
    await tx.execute("SELECT pg_advisory_xact_lock_shared($1)", SETTINGS_LOCK)
    extended: list[bool] = []
    for item in items:
        extended.append((await stamp(tx)).life == item.life)
        if extended[-1]:
            number = _parsed(await meta(tx, "turn")).number
            await set_meta(tx, turn=f"{number + 1}/{'' if item.done else 'busy'}")
    return extended


def _parsed(text: str) -> Turn:
    number, _, busy = text.partition("/")
    return Turn(int(number), busy != "")
