"""Circuit breakers of services: whether a failure uses up an attempt of its job, and how the index
counts the failure after the ledger has written it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fairlane.engine import job_log
from fairlane.engine.core import Core, UnavailableCall
from fairlane.index.index import ServiceCallRef
from fairlane.ledger.messages import Settled, Settlement, Stale
from fairlane.model.attempt import Fault
from fairlane.policy.circuit_breaker import CircuitBreaker, failed

if TYPE_CHECKING:
    from fairlane.engine.settle import Failed

Place = tuple[str, str | None]
"""A service, and one of its regions or None."""


class FailureTerms(NamedTuple):
    """`free`: jobs whose failure uses up no attempt. `open_until`: by token, the time (µs) until
    which the circuit breaker lets no call through."""

    free: set[str]
    open_until: dict[str, int]


async def read_breakers(
    core: Core, failures: Iterable[Failed]
) -> Mapping[Place, CircuitBreaker | None]:
    """The circuit breakers of these failures, read from the index; None = the index did not
    answer."""
    places = {_place(each) for each in failures if each.fault is Fault.UNAVAILABLE}
    return {place: await core.ask_index(core.index.breaker(*place)) for place in places}


@contextmanager
def terms_of_failures(
    core: Core, failures: Sequence[Failed], shown: Mapping[Place, CircuitBreaker | None], now: int
) -> Iterator[FailureTerms]:
    """The terms of these failures, from the breakers that were read and from the failures that
    other calls of this process are writing. Inside the context the failures are written, then
    counted."""
    terms = FailureTerms(set(), {})
    calls: list[tuple[Place, UnavailableCall]] = []
    for report in failures:
        if report.fault is not Fault.UNAVAILABLE:
            continue
        lease, place = report.lease, _place(report)
        call = UnavailableCall(lease.token, lease.job, now, report.retry_after)
        breaker = shown.get(place) or CircuitBreaker()
        for other in core.failing.get(place, ()):
            if breaker.confirmed:
                break
            breaker = failed(breaker, *other).breaker
        verdict = failed(breaker, *call)
        terms.open_until[lease.token] = verdict.breaker.open_until
        terms.free.update(verdict.attempts_returned)
        if verdict.free:
            terms.free.add(lease.job)
        core.failing.setdefault(place, []).append(call)
        calls.append((place, call))
    try:
        yield terms
    finally:
        for place, call in calls:
            core.failing[place].remove(call)
            if not core.failing[place]:
                del core.failing[place]


async def count_failures(
    core: Core,
    failures: Sequence[Failed],
    written: Iterable[tuple[Settlement, Settled | Stale]],
    terms: FailureTerms,
    now: int,
) -> set[tuple[str, str]]:
    """Tells the index which services did not answer. Returns the jobs that used up an attempt for a
    failure of their service and get it back, each with that service. A failure that used up no
    attempt is counted under its token, because there is no attempt to return."""
    asked = {each.lease.token: each.retry_after for each in failures}
    paid: set[tuple[str, str]] = set()
    for settlement, outcome in written:
        lease = settlement.lease
        if settlement.fault is not Fault.UNAVAILABLE or isinstance(outcome, Stale) or outcome.again:
            continue
        call = ServiceCallRef(lease.service, lease.region, lease.token)
        free = lease.job in terms.free
        verdict = await core.index.unavailable(
            call, lease.token if free else lease.job, now, asked[lease.token]
        )
        job_log.unavailable(core, lease, verdict.breaker, now)
        paid.update((job, lease.service) for job in verdict.attempts_returned)
        if verdict.free and not free:
            paid.add((lease.job, lease.service))
    return paid


async def return_attempts(core: Core, paid: set[tuple[str, str]]) -> None:
    """Return the last attempt to those of these jobs that still wait for this service. A job at
    another step has used its attempts for something else."""
    found = await core.ledger.jobs(sorted({job for job, _ in paid}))
    await core.ledger.return_attempts(
        [
            (job.id, job.step, job.attempt)
            for job in found.values()
            if job.attempt and (job.id, job.current.service) in paid
        ]
    )


def _place(report: Failed) -> Place:
    return report.lease.service, report.lease.region
