"""Bulk SQL statements: many rows at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any


def marks(values: Sequence[object]) -> str:
    """Placeholders for an IN list."""
    return ",".join("?" * len(values))


def chunks(values: Sequence[Any], size: int = 500) -> Iterable[Sequence[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


PARTS = (500, 100, 10, 1)
"""Row counts of one statement: few sizes, so that each is prepared once."""


def parts(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Split the values into as few statements as the sizes allow. Each statement takes the
    interpreter lock again, so one for many rows is cheaper than one for each row."""
    done = 0
    for size in PARTS:
        while len(values) - done >= size:
            yield values[done : done + size]
            done += size


@lru_cache
def insert(table: str, width: int, rows: int) -> str:
    return f"INSERT INTO {table} VALUES {placeholders(width, rows)}"


def placeholders(width: int, rows: int) -> str:
    row = f"({', '.join('?' * width)})"
    return ", ".join([row] * rows)
