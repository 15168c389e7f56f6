"""Crash recovery at start: a process that owns its ledger alone takes back the calls that its
predecessor did not finish."""

from __future__ import annotations

import logging

from fairlane.engine.core import Core
from fairlane.engine.settle import Failed, settle
from fairlane.ledger import rows
from fairlane.ledger.messages import Settled
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.lease import Lease
from fairlane.model.worker import worker_of

log = logging.getLogger("fairlane")

BATCH = 500

MESSAGE = "the process that made the call ended before the call did"


async def recover(core: Core) -> int:
    """Take back the calls of the previous process at once. Renew the leases of all other workers
    for their full length, because these workers could not reach the ledger meanwhile. Returns how
    many calls were taken back. Does nothing on a shared ledger: there only an expired lease shows
    that its holder has ended."""
    if not core.ledger.alone:
        return 0
    leases = await _unfinished_calls(core)
    for start in range(0, len(leases), BATCH):
        part = leases[start : start + BATCH]
        settled = await settle(core, [_interrupted(lease) for lease in part])
        core.instrumentation.expired(sum(isinstance(each, Settled) for each in settled))
    if leases:
        log.info("took back %d calls that the last process did not finish", len(leases))
    await core.ledger.prolong(core.now())
    core.reached_since = 0  # the renewed leases already allow for the outage
    return len(leases)


async def _unfinished_calls(core: Core) -> list[Lease]:
    inside = {worker.id for worker, _ in await core.ledger.workers() if worker.in_process}
    held = await core.ledger.held() if inside else []
    return [rows.lease(job) for job in held if worker_of(job.worker or "") in inside]


def _interrupted(lease: Lease) -> Failed:
    """The failure report of such a call. As for an expired lease, it uses up one attempt, and the
    call may still be running at the service."""
    return Failed(lease, Fault.TRANSIENT, MESSAGE, closed=False, outcome=Outcome.LOST)
