"""The reaper: takes back expired leases, but not after an outage in which no holder could renew."""

from __future__ import annotations

from fairlane.engine.core import Core
from fairlane.engine.settle import Failed, settle
from fairlane.ledger.messages import Settled
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.lease import Lease
from fairlane.model.worker import worker_of
from fairlane.units import SECOND

REAP_BATCH = 500

LEDGER_AWAY_MICROSECONDS = 4 * SECOND
"""Time without an answer of the ledger after which lease holders may not have reached it either."""


async def reap(core: Core) -> int:
    """Take back expired leases. A lease is taken back only if this process has reached the ledger
    without a break for at least the length of the lease. After an outage, workers that could not
    renew their leases keep them for one full length more."""
    total = 0
    while True:
        now = core.now()
        expired = await core.ledger.expired(now, now - core.reached_since, REAP_BATCH)
        if _had_outage(core):
            return total
        if expired:
            settled = await settle(core, [_expired(lease, now) for lease in expired])
            core.instrumentation.expired(sum(isinstance(each, Settled) for each in settled))
        total += len(expired)
        if len(expired) < REAP_BATCH:
            return total


async def check_ledger(core: Core) -> None:
    """Read from the ledger, to notice an outage of the ledger or a pause of this process."""
    await core.ledger.turn()
    _had_outage(core)


def _had_outage(core: Core) -> bool:
    """Called when the ledger has just answered. Returns whether more than 4 s have passed since its
    previous answer: the ledger was unreachable, or this process was suspended."""
    now, before = core.clock.machine(), core.ledger_answered_at
    core.ledger_answered_at = now
    if now - before <= LEDGER_AWAY_MICROSECONDS:
        return False
    core.reached_since = core.now()
    return True


def _expired(lease: Lease, now: int) -> Failed:
    """The failure report of an expired lease. The back-off counts from the end of the lease, not
    from the time the reaper found it."""
    if now >= lease.deadline:
        message = f"no result after {(lease.deadline - lease.started_at) / SECOND:g} s"
        fault, outcome = Fault.TIMEOUT, Outcome.TIMEOUT
    else:
        message = f"worker {worker_of(lease.worker)} was not heard of again"
        fault, outcome = Fault.TRANSIENT, Outcome.LOST
    ended_at = lease.lease_until
    return Failed(lease, fault, message, closed=False, outcome=outcome, ended_at=ended_at)
