"""Structured logging of job transitions: submits, starts, ends, retries, promotions, dead letters,
and of circuit breakers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from fairlane.engine.core import Core
from fairlane.ledger.messages import (
    Settled,
    Settlement,
    Stale,
    Submission,
    SubmissionAccepted,
    SubmitOutcome,
)
from fairlane.model.attempt import Outcome
from fairlane.model.job import Job
from fairlane.model.lease import Lease
from fairlane.model.state import Move
from fairlane.model.worker import worker_of
from fairlane.policy.circuit_breaker import NO_ANSWER, CircuitBreaker
from fairlane.units import SECOND

jobs = logging.getLogger("fairlane.jobs")
services = logging.getLogger("fairlane.services")

ENDINGS = {
    Move.COMPLETE: (logging.INFO, "job completed"),
    Move.ADVANCE: (logging.DEBUG, "step completed"),
    Move.RETRY: (logging.INFO, "attempt failed, will be retried"),
    Move.FAIL: (logging.INFO, "job failed"),
    Move.BURY: (logging.WARNING, "job is a dead letter: its attempts are used up"),
    Move.GIVE_BACK: (logging.DEBUG, "attempt given back"),
}
MOVED = {
    Move.RESUME: "job resumed",
    Move.REPLAY: "job replayed",
    Move.REOPEN: "fan-out retried: its failed executions",
}


# --- jobs ----------------------------------------------------------------------------------------
def submitted(prepared: Sequence[Submission], outcomes: Sequence[SubmitOutcome]) -> None:
    if not jobs.isEnabledFor(logging.DEBUG):
        return
    for submission, outcome in zip(prepared, outcomes, strict=True):
        if isinstance(outcome, SubmissionAccepted):
            common = submission.common
            _log(
                logging.DEBUG,
                "job submitted",
                job=submission.id,
                tenant=common.tenant,
                name=common.name,
                tier=common.tier,
                executions=len(submission.cells) or None,
                trace=common.trace,
            )


def started(leases: Iterable[Lease]) -> None:
    if not jobs.isEnabledFor(logging.DEBUG):
        return
    for lease in leases:
        _log(
            logging.DEBUG,
            "attempt started",
            **_attempt(lease),
            waited_seconds=round(lease.waited / SECOND, 3),
        )


def settled(outcomes: Iterable[tuple[Settlement, Settled | Stale]]) -> None:
    for settlement, outcome in outcomes:
        if isinstance(outcome, Stale):
            if jobs.isEnabledFor(logging.INFO):
                state = None if outcome.state is None else str(outcome.state)
                text = "late result refused: its lease was gone"
                _log(logging.INFO, text, **_attempt(settlement.lease), state=state)
            continue
        level, text = ENDINGS[settlement.move]
        if outcome.again or not jobs.isEnabledFor(level):
            continue
        _log(level, text, **_attempt(settlement.lease), **_ending(settlement))
        if outcome.ended_parent is not None:
            tenant = settlement.lease.tenant
            _log(logging.INFO, "fan-out ended", job=outcome.ended_parent, tenant=tenant)


def moved(move: Move, job: str, tenant: str | None, number: int) -> None:
    """A job, or a fan-out with this number of executions, was resumed or replayed."""
    if jobs.isEnabledFor(logging.INFO):
        _log(logging.INFO, MOVED[move], job=job, tenant=tenant, executions=_several(number))


def cancelled(job: str, tenant: str | None, number: int) -> None:
    if jobs.isEnabledFor(logging.INFO):
        _log(logging.INFO, "job cancelled", job=job, tenant=tenant, executions=_several(number))


def stopped(job: str, number: int) -> None:
    """The other executions of a fan-out were stopped because one has failed."""
    if jobs.isEnabledFor(logging.INFO):
        _log(logging.INFO, "fan-out stopped", job=job, executions=_several(number))


def skipped(job: str, tenant: str | None, price: int) -> None:
    if jobs.isEnabledFor(logging.INFO):
        _log(logging.INFO, "job moved to the front", job=job, tenant=tenant, price=price)


def gave_up(found: Iterable[Job]) -> None:
    """These jobs have waited longer than their `max_wait`."""
    if jobs.isEnabledFor(logging.INFO):
        for job in found:
            _log(logging.INFO, "job failed: it waited too long", **_waiting(job))


async def promoted(
    core: Core, levels: Sequence[tuple[str, str]], before: Sequence[str | None]
) -> None:
    """Log promotions. `levels`: (job, new level). `before`: the old level; None = announced
    already."""
    if not jobs.isEnabledFor(logging.DEBUG):
        return
    told = {job: (old, new) for (job, new), old in zip(levels, before, strict=True) if old}
    for job in (await core.ledger.jobs(list(told))).values():
        old, new = told[job.id]
        _log(logging.DEBUG, "job promoted", **_waiting(job), before=old, now=new)


# --- services ------------------------------------------------------------------------------------
def unavailable(core: Core, lease: Lease, breaker: CircuitBreaker, now: int) -> None:
    """The service did not answer a call. Logged once, when the circuit breaker opens."""
    key = (lease.service, lease.region)
    if not breaker.confirmed or key in core.broken:
        return
    core.broken[key] = now
    services.warning(
        "circuit breaker opened: the service does not answer, calls stop until a probe succeeds",
        extra={"fields": _service(lease, (breaker.open_until - now) / SECOND)},
    )


def answered(core: Core, outcomes: Iterable[tuple[Settlement, Settled | Stale]]) -> None:
    """Log that a circuit breaker has closed. While it is open only probes start, so an answer to a
    call that started after it opened closes it."""
    for settlement, _ in outcomes:
        lease = settlement.lease
        key = (lease.service, lease.region)
        opened_at = core.broken.get(key)
        said_nothing = settlement.outcome is Outcome.RELEASED or settlement.fault in NO_ANSWER
        if opened_at is None or lease.started_at <= opened_at or said_nothing:
            continue
        del core.broken[key]
        services.warning(
            "circuit breaker closed: the service answers again",
            extra={"fields": _service(lease)},
        )


# --- fields --------------------------------------------------------------------------------------
def _log(level: int, text: str, **fields: Any) -> None:
    kept = {name: value for name, value in fields.items() if value is not None}
    jobs.log(level, text, extra={"fields": kept})


def _attempt(lease: Lease) -> dict[str, Any]:
    return {
        "job": lease.job,
        "tenant": lease.tenant,
        "name": lease.name,
        "service": lease.service,
        "step": lease.step + 1,
        "attempt": lease.attempt,
        "worker": worker_of(lease.worker),
        "region": lease.region,
        "tier": lease.tier,
        "trace": lease.trace,
    }


def _ending(settlement: Settlement) -> dict[str, Any]:
    lease, retried = settlement.lease, settlement.move is Move.RETRY
    return {
        "took_seconds": round((settlement.now - lease.started_at) / SECOND, 3),
        "outcome": str(settlement.outcome),
        "fault": settlement.fault and str(settlement.fault),
        "code": settlement.error and str(settlement.error.code),
        "retry_in_seconds": round((settlement.ready_at - settlement.now) / SECOND, 3)
        if retried
        else None,
    }


def _waiting(job: Job) -> dict[str, Any]:
    return {
        "job": job.id,
        "tenant": job.tenant,
        "name": job.name,
        "service": job.current.service,
        "step": job.step + 1,
        "attempt": job.attempt,
        "tier": job.tier,
        "trace": job.trace,
    }


def _service(lease: Lease, probe_in: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"service": lease.service}
    if lease.region is not None:
        found["region"] = lease.region
    if probe_in is not None:
        found["probe_in_seconds"] = round(probe_in, 3)
    return found


def _several(number: int) -> int | None:
    return number if number > 1 else None
