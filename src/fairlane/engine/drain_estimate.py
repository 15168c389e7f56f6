"""An estimate of when a queue is empty, from its slots and past durations."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.engine.core import Core

MAX_DRAIN_MICROSECONDS = 3_600_000_000


def drained_at(core: Core, waiting: int, now: int, services: Iterable[str]) -> int:
    """When so many jobs would have started: depth by what these services can do together."""
    workers = max(1, len(core.loaded))
    rate = sum(
        (core.service(name).limit or workers) / max(1, core.costs.get(name)) for name in services
    )
    return now + (
        min(MAX_DRAIN_MICROSECONDS, round(waiting / rate)) if rate else MAX_DRAIN_MICROSECONDS
    )
