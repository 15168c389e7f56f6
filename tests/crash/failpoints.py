"""Places where a process may die: before and after every statement, before and after every verb of
the index."""

from __future__ import annotations

import inspect
import os
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from fairlane.index.index import Index

KILLED = 137


class Failpoints:
    """Counts the places reached while armed. At the one it was told, the process is gone: no
    handler runs, nothing is flushed, nobody is told."""

    def __init__(self, crash_at: int = 0) -> None:
        self.crash_at = crash_at
        self.armed = False
        self.names: list[str] = []

    def reach(self, name: str) -> None:
        if self.armed:
            self.names.append(name)
            if len(self.names) == self.crash_at:
                os._exit(KILLED)


def watched_connection(points: Failpoints) -> type[sqlite3.Connection]:
    """A connection with a failpoint on both sides of every statement."""

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            points.reach(f"before {_short(sql)}")
            cursor = super().execute(sql, *args)
            points.reach(f"after {_short(sql)}")
            return cursor

        def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite3.Cursor:
            points.reach(f"before {_short(sql)} …")
            cursor = super().executemany(sql, rows)
            points.reach(f"after {_short(sql)} …")
            return cursor

    return Watched


class WatchedIndex:
    """The index with a failpoint on both sides of every verb. `told` hears what it has taken in:
    what has happened to an index that outlives the process."""

    def __init__(self, index: Index, points: Failpoints, told: Callable[[str, int], None]) -> None:
        self._index, self._points, self._told = index, points, told

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._index, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def reached(*args: Any, **more: Any) -> Any:
            self._points.reach(f"before index.{name}")
            result = await verb(*args, **more)
            if name in ("put", "load"):
                for entry in args[name == "load"]:
                    self._told(entry.id, entry.rev)
            if name == "correct_entry" and args[1] is not None:
                self._told(args[1].id, args[1].rev)
            self._points.reach(f"after index.{name}")
            return result

        return reached


def _short(sql: str) -> str:
    return " ".join(sql.split())[:60]
