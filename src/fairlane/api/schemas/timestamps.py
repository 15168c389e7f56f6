"""Timestamps on the wire: RFC 3339, UTC, milliseconds. Inside they are integer microseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from fairlane.units import SECOND

LAST_SECOND = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
"""The last second that RFC 3339 can express: a year has four digits."""


@lru_cache(64)  # one response often repeats a time
def iso(at: int) -> str:
    moment = datetime.fromtimestamp(min(max(0, at // SECOND), LAST_SECOND), UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at // 1000 % 1000:03d}Z"


def iso_or_none(at: int | None) -> str | None:
    return None if at is None else iso(at)


def microseconds(text: str) -> int:
    """Parses an RFC 3339 time. Raises ValueError if it has no zone, or is not between 1970 and 9999
    in UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs its zone, such as Z at the end")
    at = round(moment.timestamp() * 1000) * 1000
    if not 0 <= at < (LAST_SECOND + 1) * SECOND:
        raise ValueError("a time lies between 1970-01-01 and 9999-12-31, in UTC")
    return at


def seconds(duration: int) -> float:
    return round(duration / SECOND, 3)
