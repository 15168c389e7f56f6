"""How soon a line is empty, as far as slots and past costs tell."""

from __future__ import annotations

from fairlane.engine.core import Core

LONGEST = 3_600_000_000


def drained_at(core: Core, waiting: int, now: int) -> int:
    """When so many jobs would have started: depth by what all services can do together."""
    workers = max(1, len(core.loaded))
    rate = sum(
        (service.limit or workers) / max(1, core.costs.get(name))
        for name, service in core.catalog.services.items()
    )
    return now + (min(LONGEST, round(waiting / rate)) if rate else LONGEST)
