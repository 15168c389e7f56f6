"""Connection watchdog: finds connections whose answer does not come, so that they can be closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import asyncpg

SUSPECT_AFTER_SECONDS = 1.0
"""A statement that has waited longer may be lost: the server is asked whether it works on it."""

SILENT = "PostgreSQL does not answer"

BUSY = frozenset({"active", "fastpath function call", "disabled", None})
"""States of a session that works, or whose state the server does not show."""


class WatchedConnection(asyncpg.Connection):
    """A connection that records since when it waits for an answer."""

    asked_at: float | None = None

    @contextmanager
    def asking(self) -> Iterator[None]:
        self.asked_at = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self.asked_at = None

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        with self.asking():
            return await super().execute(query, *args, timeout=timeout)

    async def executemany(self, command: str, args: Any, *, timeout: float | None = None) -> None:
        with self.asking():
            await super().executemany(command, args, timeout=timeout)

    async def fetch(self, query: str, *args: object, **options: Any) -> Any:
        with self.asking():
            return await super().fetch(query, *args, **options)

    async def fetchrow(self, query: str, *args: object, **options: Any) -> Any:
        with self.asking():
            return await super().fetchrow(query, *args, **options)

    async def fetchval(self, query: str, *args: object, **options: Any) -> Any:
        with self.asking():
            return await super().fetchval(query, *args, **options)


class WatchedConnections:
    """The open connections of a pool."""

    def __init__(self) -> None:
        self.silent = asyncio.Event()
        """Set while the server does not answer: no caller waits for it."""
        self.pooled = False
        """Whether the connections lead to a pooler, which hides the server's process ids."""
        self._open: WeakSet[WatchedConnection] = WeakSet()
        self._idle: dict[int, float] = {}
        self.left: set[int] = set()
        """Server process ids of connections that were closed without the server noticing."""

    async def connect(self, *args: Any, **options: Any) -> WatchedConnection:
        """Open a connection; the pool calls this. Raises ConnectionError while the server is
        silent. A cancelled caller leaves no connection behind."""
        connecting = asyncio.create_task(asyncpg.connect(*args, **options))
        silent = asyncio.create_task(self.silent.wait())
        connection: WatchedConnection | None = None
        try:
            await asyncio.wait([connecting, silent], return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                connection = connecting.result()
        finally:
            silent.cancel()
            if connection is None:
                connecting.cancel()
                connecting.add_done_callback(_terminate)
        if connection is None:
            raise ConnectionError(SILENT)
        self._open.add(connection)
        return connection

    def suspects(self) -> dict[int, float]:
        """Server process ids whose answer is overdue, and since when."""
        before = asyncio.get_running_loop().time() - SUSPECT_AFTER_SECONDS
        return {
            each.get_server_pid(): each.asked_at
            for each in self._open
            if not each.is_closed() and each.asked_at is not None and each.asked_at < before
        }

    def close_lost(
        self, suspects: dict[int, float], found: Sequence[tuple[int, str | None]]
    ) -> None:
        """Close connections whose server process is idle or gone in two successive checks: their
        answer is lost."""
        states = dict(found)
        idle = {pid: at for pid, at in suspects.items() if states.get(pid, "gone") not in BUSY}
        lost = {pid for pid, at in idle.items() if self._idle.get(pid) == at}
        self._idle = idle
        if lost:
            self._close(lambda each: each.get_server_pid() in lost)

    def close_all(self) -> None:
        """Close all connections, because the server is silent: no caller waits any longer."""
        self.silent.set()
        self._close(lambda _: True)

    def _close(self, is_lost: Callable[[WatchedConnection], bool]) -> None:
        for each in list(self._open):
            if not each.is_closed() and is_lost(each):
                self.left.add(each.get_server_pid())
                each.terminate()


def _terminate(connecting: asyncio.Task[WatchedConnection]) -> None:
    """Close a connection that was opened after its caller was cancelled."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().terminate()
