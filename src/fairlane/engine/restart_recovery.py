"""Recovery at start: the only process on a ledger takes back the calls of its previous life."""

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
    """Take back the calls of the last life at once, and give the leases of all other workers, who
    could not reach the ledger meanwhile, their full time again. How many calls were taken back.
    Where other processes may live, only an expired lease tells that its holder is gone."""
    if not core.ledger.alone:
        return 0
    leases = await _of_the_last_life(core)
    for start in range(0, len(leases), BATCH):
        part = leases[start : start + BATCH]
        settled = await settle(core, [_interrupted(lease) for lease in part])
        core.instrumentation.expired(sum(isinstance(each, Settled) for each in settled))
    if leases:
        log.info("took back %d calls that the last process did not finish", len(leases))
    await core.ledger.prolong(core.now())
    core.reached_since = 0  # leases say by themselves how long their holders are waited for
    return len(leases)


async def _of_the_last_life(core: Core) -> list[Lease]:
    inside = {worker.id for worker, _ in await core.ledger.workers() if worker.in_process}
    held = await core.ledger.held() if inside else []
    return [rows.lease(job) for job in held if worker_of(job.worker or "") in inside]


def _interrupted(lease: Lease) -> Failed:
    """As for an expired lease: one attempt is used, and the service may still be at it."""
    return Failed(lease, Fault.TRANSIENT, MESSAGE, closed=False, outcome=Outcome.LOST)
