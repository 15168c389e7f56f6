"""Failover: a retry leaves the region that failed, and may return after a while."""

from __future__ import annotations

from fairlane.engine.core import Core
from fairlane.ledger.messages import Settlement
from fairlane.model.attempt import Fault
from fairlane.model.job import Job
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.policy.failover import RegionFailure, fail_over, may_return


def leave_region(
    retry: Settlement, service: Service, delay: int, probe_at: int, *, free: bool
) -> Settlement:
    """The settlement of this retry after the failover: with another lane, ready at another time.
    The arguments are those of `RegionFailure`."""
    lease = retry.lease
    failure = RegionFailure(
        lease.at.lane,
        lease.lane,
        lease.region or "",
        retry.now,
        probe_at,
        delay,
        retry.fault is Fault.UNAVAILABLE,
        free,
    )
    lane, ready_at = fail_over(service, failure)
    (told,) = retry.facts
    return retry._replace(
        lane=lane,
        ready_at=ready_at,
        give_up_at=ready_at + lease.at.max_wait if lease.at.max_wait else None,
        facts=(told._replace(data={**told.data, "again_at": ready_at}),),
    )


async def return_to_regions(core: Core, page: list[Job]) -> list[Job]:
    """Give the retries among these live jobs that left a region and have waited since their own
    lanes back. Returns the jobs as they are then. The index is not told."""
    now = core.now()
    returning = [
        job
        for job in page
        if job.state is State.QUEUED
        and not job.fan_out
        and may_return(job.lane, job.current.lane, job.ready_at, now)
    ]
    if not returning:
        return page
    await core.ledger.change_lanes([(job.id, job.rev, job.current.lane) for job in returning])
    changed = await core.ledger.jobs([job.id for job in returning])
    return [changed.get(job.id, job) for job in page]
