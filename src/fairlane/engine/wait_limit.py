"""The wait limit: jobs that have waited longer than their `max_wait` fail."""

from __future__ import annotations

from fairlane.engine import job_log
from fairlane.engine.core import Core

GIVE_UP_BATCH = 500


async def give_up(core: Core) -> int:
    """Fail the jobs that have waited longer than their `max_wait`."""
    total = 0
    while True:
        written = await core.ledger.give_up(core.now(), GIVE_UP_BATCH)
        (jobs,) = written.outcomes
        await core.index.take([(job.id, job.rev + 1) for job in jobs])
        core.ledger.published(written.receipts)
        core.subscriptions.tell(job.id for job in jobs)
        core.subscriptions.tell(job.parent for job in jobs if job.parent is not None)
        job_log.gave_up(jobs)
        total += len(jobs)
        if len(jobs) < GIVE_UP_BATCH:
            return total
