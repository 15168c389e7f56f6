"""Times on the wire: RFC 3339, UTC, with milliseconds; inside they are integer microseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

SECOND = 1_000_000


@lru_cache(64)  # what is written together was made together
def iso(at: int) -> str:
    moment = datetime.fromtimestamp(at // SECOND, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at // 1000 % 1000:03d}Z"


def iso_or_none(at: int | None) -> str | None:
    return None if at is None else iso(at)


def microseconds(text: str) -> int:
    """Raises ValueError for what is no RFC 3339 time with a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs its zone, such as Z at the end")
    return round(moment.timestamp() * 1000) * 1000


def seconds(duration: int) -> float:
    return round(duration / SECOND, 3)
