"""Renew: leases go on as long as their worker says so."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from fairlane.engine.core import Core
from fairlane.ledger.shapes import Renewal


async def renew(core: Core, leases: Sequence[tuple[str, str]], until: int) -> Renewal:
    """Every (job, token) that still holds lasts until then; the others are named."""
    if not leases:
        return Renewal([], [])
    began = perf_counter()
    renewal = await core.ledger.renew(leases, until, core.now())
    core.meter.renewed(perf_counter() - began)
    return renewal
