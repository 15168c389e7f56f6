"""Circuit breakers of services: reports the outcome of attempts to the index, which opens and
closes them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from fairlane.engine import job_log
from fairlane.engine.core import Core
from fairlane.errors import NotReady
from fairlane.index.index import ServiceCallRef
from fairlane.model.attempt import Fault

if TYPE_CHECKING:
    from fairlane.engine.settle import Failed


class CircuitBreakers(NamedTuple):
    """What these reports say about their services: jobs whose failure costs nothing, and by token
    until when the gate is closed."""

    free: set[str]
    closed_until: dict[str, int]


async def service_circuit_breakers(
    core: Core, failures: Sequence[Failed], settled: Set[str], now: int
) -> CircuitBreakers:
    """Tells the index. Those who failed before, and are not among the jobs that are `settled` now,
    get their last attempt back when their service turns out to be sick."""
    health = CircuitBreakers(set(), {})
    forgiven: set[str] = set()
    sick = [each.lease.job for each in failures if each.fault is Fault.UNAVAILABLE]
    present = await core.ledger.jobs(sick) if sick else {}
    for report in failures:
        lease = report.lease
        job = present.get(lease.job)
        if report.fault is Fault.UNAVAILABLE and (job is None or job.token != lease.token):
            continue  # it will be told that it is stale; what it saw is of another time
        with suppress(NotReady):  # who is sick is not known then; the result counts all the same
            forgiven.update(await _tell(core, report, health, now))
    forgiven -= settled
    if forgiven:
        queued = await core.ledger.jobs(sorted(forgiven))
        await core.ledger.forgive([(job.id, job.attempt) for job in queued.values() if job.attempt])
    return health


async def _tell(core: Core, report: Failed, health: CircuitBreakers, now: int) -> tuple[str, ...]:
    """Whom the index forgives their last attempt."""
    lease = report.lease
    call = ServiceCallRef(lease.service, lease.region, lease.token)
    if report.fault is Fault.UNAVAILABLE:
        failure = await core.index.unavailable(call, lease.job, now, report.retry_after)
        job_log.unavailable(core, lease, failure.breaker, now)
        health.closed_until[lease.token] = failure.breaker.closed_until
        health.free.update(failure.forgiven)
        if failure.free:
            health.free.add(lease.job)
        return failure.forgiven
    if report.fault not in (Fault.TIMEOUT, Fault.TRANSIENT):
        await core.index.answered([call])
    return ()
