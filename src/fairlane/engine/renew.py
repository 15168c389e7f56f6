"""Lease renewal: a heartbeat extends the leases of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from fairlane.engine.core import Core
from fairlane.ledger.messages import Renewal


async def renew(core: Core, leases: Sequence[tuple[str, str]], until: int) -> Renewal:
    """Every (job, token) that still holds lasts until then; the others are named."""
    if not leases:
        return Renewal([], [])
    began = perf_counter()
    renewal = await core.ledger.renew(leases, until, core.now())
    core.instrumentation.renewed(perf_counter() - began)
    return renewal
