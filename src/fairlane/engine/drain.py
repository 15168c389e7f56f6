"""How soon a line is empty, as far as slots and past costs tell."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.engine.core import Core

LONGEST = 3_600_000_000


def drained_at(core: Core, waiting: int, now: int, services: Iterable[str]) -> int:
    """When so many jobs would have started: depth by what these services can do together."""
    workers = max(1, len(core.loaded))
    rate = sum(
        (core.service(name).limit or workers) / max(1, core.costs.get(name)) for name in services
    )
    return now + (min(LONGEST, round(waiting / rate)) if rate else LONGEST)
