"""The project's own past as a workload: what really came, and how long it really took."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from fairlane.ledger.messages import Filter
from fairlane.ledger.reader import LedgerReader
from fairlane.model.attempt import Attempt, Outcome
from fairlane.model.job import Job, Json, fair_user

EXPORT_PAGE = 500


async def lines(past: LedgerReader, *, anonymous: bool = False) -> AsyncIterator[dict[str, Json]]:
    """Every job all of whose steps have been done once. How long a step took is how long its last
    good attempt took, with the loading of its model."""
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
    """With the cells of a fan-out in its place."""
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
