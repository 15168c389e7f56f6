"""Store statistics (health metrics): size, age and latency of a store, for metrics and
readiness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, NamedTuple

from fairlane.ledger.messages import Counts
from fairlane.ledger.running import Read
from fairlane.model.key import Key


class StoreSigns(NamedTuple):
    """The oldest outbox row; the number of rows that wait for vacuum, by table; and the age, in
    microseconds, of the oldest transaction that delays the vacuum. The last two are empty for a
    store without vacuum."""

    outbox: int | None = None
    dead: Mapping[str, int] | None = None
    oldest_transaction: int | None = None


class StoreServer(NamedTuple):
    """The server or the file behind a ledger. `settings` are those that durability depends on.
    `wall_clock` is the server's time (µs). The free space is known of a file only, the connections
    of a server only. `schema` is None if there is none yet."""

    kind: Literal["sqlite", "postgres"]
    version: str
    schema: int | None
    known_schema: int
    settings: Mapping[str, str]
    read_only: bool = False
    size_bytes: int = 0
    wall_clock: int | None = None
    connections: int | None = None
    max_connections: int | None = None
    free_bytes: int | None = None
    disk_bytes: int | None = None


class StoreProbe(NamedTuple):
    """A store as it is found before a process serves it, with the API keys that it holds."""

    server: StoreServer
    keys: list[Key]


class StoreVerbs(NamedTuple):
    """The functions of one store. All of them read."""

    signs: Callable[..., Any]
    imbalance: Callable[..., Any]
    server: Callable[..., Any]
    invariants: Callable[..., Any]
    overdue: Callable[..., Any]


class StoreWaits:
    """Reports how many seconds each transaction, or read, has waited in the queue. Not
    thread-safe."""

    def __init__(self) -> None:
        self.observe: Callable[[float], None] = _ignore


def _ignore(_: float) -> None: ...


TRY_SECONDS = 1.0

Write = Callable[[], Coroutine[Any, Any, None]]
"""Makes a durable write."""


class StoreStats:
    def __init__(
        self,
        waits: StoreWaits,
        read: Read,
        write: Write,
        verbs: StoreVerbs,
    ) -> None:
        self.waits, self._read, self._write, self._verbs = waits, read, write, verbs
        self._trial: asyncio.Task[None] | None = None
        self._tried_at = 0.0

    async def demand_writable(self) -> None:
        """Raises the error that keeps the store from writing. The store is tried at most once a
        second, for any number of callers."""
        now = asyncio.get_running_loop().time()
        if self._trial is None or (self._trial.done() and now - self._tried_at >= TRY_SECONDS):
            self._trial, self._tried_at = asyncio.create_task(self._write()), now
            self._trial.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._trial)

    async def signs(self) -> StoreSigns:
        found: StoreSigns = await self._read(self._verbs.signs)
        return found

    async def imbalance(self) -> int:
        """Operations whose entries do not sum to zero, and balances that are not the sum of their
        entries. Reads all entries. Raises TookTooLong."""
        found: int = await self._read(self._verbs.imbalance)
        return found

    async def server(self) -> StoreServer:
        found: StoreServer = await self._read(self._verbs.server)
        return found

    async def invariants(self, within: float) -> Counts:
        """Count violations of the ledger's invariants. Raises TookTooLong after so many seconds."""
        found: Counts = await self._read(self._verbs.invariants, within)
        return found

    async def overdue(self, finished_before: int, dead_before: int, limit: int) -> int:
        """How many ended jobs and dead letters are older than that, counted up to about `limit`.
        Retention should have deleted them."""
        found: int = await self._read(self._verbs.overdue, finished_before, dead_before, limit)
        return found


def _retrieve_exception(trial: asyncio.Task[None]) -> None:
    """Retrieve the exception, so that asyncio does not report it if the caller was cancelled."""
    if not trial.cancelled():
        trial.exception()
