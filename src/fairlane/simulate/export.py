"""Export of the ledger's history as a workload: real arrivals and real service times."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from fairlane.ledger.messages import Filter
from fairlane.ledger.reader import LedgerReader
from fairlane.model.attempt import Attempt, Outcome
from fairlane.model.job import Job, Json, fair_user

EXPORT_PAGE = 500


async def lines(past: LedgerReader, *, anonymous: bool = False) -> AsyncIterator[dict[str, Json]]:
    """Every job whose steps have all completed once. A step's duration is that of its last
    completed attempt, including the loading of its model."""
    numbers: dict[str, str] = {}
    async for job in _jobs(past, Filter()):
        seconds = _seconds(job, await past.attempts(job.id))
        if seconds is None:
            continue
        user = fair_user(job.tenant, job.user, job.key)
        if anonymous:
            user = numbers.setdefault(user, f"u{len(numbers) + 1}")
        yield {
            "t": job.created_at / 1_000_000,
            "user": user,
            "tier": job.tier,
            "service": job.name,
            "model": job.model,
            "seconds": seconds,
        }


async def _jobs(past: LedgerReader, wanted: Filter) -> AsyncIterator[Job]:
    """The jobs, with the cells of a fan-out in place of the fan-out."""
    after = None
    while page := await past.list_jobs(wanted, after, EXPORT_PAGE):
        for job in page:
            if not job.fan_out:
                yield job
                continue
            async for cell in _jobs(past, Filter(parent=job.id)):
                yield cell
        after = page[-1].id


def _seconds(job: Job, attempts: Sequence[Attempt]) -> list[float] | None:
    took = {
        each.step: (each.ended_at - each.started_at) / 1_000_000
        for each in attempts
        if each.outcome is Outcome.COMPLETED
    }
    if len(took) < len(job.plan):
        return None
    return [took[step] for step in range(len(job.plan))]
