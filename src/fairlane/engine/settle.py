"""Settle (acknowledge or fail an attempt): the retry policy decides what happens to the job, the
ledger writes it if the fencing token is still valid, then the index is told."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from fairlane.engine import job_log, quality_check
from fairlane.engine.circuit_breaker import (
    FailureTerms,
    Place,
    count_failures,
    read_breakers,
    return_attempts,
    terms_of_failures,
)
from fairlane.engine.core import Core
from fairlane.engine.failover import leave_region
from fairlane.engine.fanout_stop import stop
from fairlane.engine.model_times import samples_of
from fairlane.index.index import Freed, ModelSample
from fairlane.json_text import json_text
from fairlane.ledger.messages import Settled, Settlement, Stale, Unwritten
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.event import EventType, Fact, place
from fairlane.model.job import Band, Error, Json
from fairlane.model.lease import Lease
from fairlane.model.queue_entry import Entry, WaitingStep
from fairlane.model.service import RetryPlace
from fairlane.model.state import ENDED, Code, Move, State
from fairlane.policy.circuit_breaker import NO_ANSWER, CircuitBreaker
from fairlane.policy.retry import Bury, Fail, Retry, Tried, Verdict, judge
from fairlane.units import SECOND

LONGEST_MESSAGE, LONGEST_RETRY_AFTER = 10_000, 3_600 * SECOND


class Done(NamedTuple):
    """The step succeeded. `closed` False: the call may still be running at the service."""

    lease: Lease
    output: Json = None
    metrics: Json = None
    closed: bool = True


class Failed(NamedTuple):
    """The step failed. `closed` as in `Done`. `retry_after` (µs): the delay that an unavailable
    service asked for. `ended_at`: when the lease expired, if it did; then nothing is written if the
    lease has been renewed meanwhile."""

    lease: Lease
    fault: Fault
    message: str = ""
    retry_after: int = 0
    closed: bool = True
    outcome: Outcome = Outcome.FAILED
    ended_at: int = 0


class GivenBack(NamedTuple):
    """The worker stops before the step is done: no attempt is used up. `closed` as in `Done`."""

    lease: Lease
    closed: bool = True


Report = Done | Failed | GivenBack


async def settle(core: Core, reports: Sequence[Report]) -> list[Settled | Stale]:
    """Each report's own outcome, in order. Stale: the lease was lost and nothing was written."""
    now, reports = core.now(), [_with_verdict(_bounded(report)) for report in reports]
    failures = [report for report in reports if isinstance(report, Failed)]
    shown = await read_breakers(core, failures) if failures else {}
    return await asyncio.shield(_write(core, reports, failures, shown, now))


async def _write(
    core: Core,
    reports: list[Report],
    failures: list[Failed],
    shown: Mapping[Place, CircuitBreaker | None],
    now: int,
) -> list[Settled | Stale]:
    """Write to the ledger, then tell the index. The caller shields this from cancellation."""
    with terms_of_failures(core, failures, shown, now) as terms:
        settlements = [
            _settlement(core, report, terms, max(now, report.lease.started_at))
            for report in reports
        ]
        return await _written(core, settlements, failures, terms, now)


async def _written(
    core: Core, settlements: list[Settlement], failures: list[Failed], terms: FailureTerms, now: int
) -> list[Settled | Stale]:
    written = await core.ledger.settle(settlements)
    done = [
        (settlement, outcome)
        for settlement, outcome in zip(settlements, written.outcomes, strict=True)
        if not isinstance(outcome, Unwritten)
    ]
    paid: set[tuple[str, str]] = set()
    with core.telling_index():
        if failures:
            paid = await count_failures(core, failures, done, terms, now)
        await _tell_index(core, done, now)
        core.ledger.published(written.receipts)
    core.subscriptions.tell(settlement.lease.job for settlement, _ in done)
    core.subscriptions.tell(
        outcome.ended_parent
        for _, outcome in done
        if isinstance(outcome, Settled) and outcome.ended_parent
    )
    for _, settled in done:
        if isinstance(settled, Settled) and settled.stopping_parent is not None:
            core.finish(stop(core, settled.stopping_parent))
    core.instrumentation.settled(done)
    _count(core, done)
    job_log.settled(done)
    if core.broken:
        job_log.answered(core, done)
    if paid:
        await return_attempts(core, paid)
    for outcome in written.outcomes:
        if isinstance(outcome, Unwritten):
            raise outcome.error
    return [outcome for _, outcome in done]


def _bounded(report: Report) -> Report:
    """The report with its message cut to 10,000 characters and `retry_after` limited to an hour."""
    if not isinstance(report, Failed):
        return report
    message = report.message[:LONGEST_MESSAGE].encode(errors="replace").decode()
    retry_after = min(max(0, report.retry_after), LONGEST_RETRY_AFTER)
    return report._replace(message=message.replace("\0", "?"), retry_after=retry_after)


def _with_verdict(report: Report) -> Report:
    """The report of a quality check as success or failure. An advisory check succeeds with
    either verdict."""
    lease = report.lease
    if lease.at.quality_check is None:
        return report
    advisory = quality_check.is_advisory(lease)
    match report:
        case Done():
            found = quality_check.fault_in(lease, report.output)
            if found is None or (advisory and found[0] is Fault.QUALITY):
                return report
            return _bounded(Failed(lease, *found, closed=report.closed))
        case Failed(fault=Fault.QUALITY) if advisory:
            verdict = {"passed": False, "reason": report.message}
            return Done(lease, verdict, closed=report.closed)
    return report


def _settlement(core: Core, report: Report, terms: FailureTerms, now: int) -> Settlement:
    settlement = _decided(core, report, terms, now)
    if report.closed:
        return settlement
    return settlement._replace(closed=False, strict=core.service(report.lease.service).strict)


def _decided(core: Core, report: Report, terms: FailureTerms, now: int) -> Settlement:
    match report:
        case Done():
            return _done(core, report, now)
        case Failed():
            return _failed(core, report, terms, now)
        case GivenBack():
            return _given_back(report, now)


async def _tell_index(
    core: Core, settled: list[tuple[Settlement, Settled | Stale]], now: int
) -> None:
    freed, queued = [], []
    times: list[ModelSample] = []
    for settlement, outcome in settled:
        lease = settlement.lease
        if isinstance(outcome, Stale):
            if settlement.closed:
                freed.append(Freed(lease.token))
            continue
        cost: int | None = None
        answered: Place | None = (lease.service, lease.region)
        if settlement.outcome is Outcome.COMPLETED and settlement.fault is None:
            cost = now - lease.started_at
            core.costs.learn(cost, lease.service, lease.model)
            if lease.model:
                times += samples_of(core, settlement, cost)
        elif settlement.fault is None or settlement.fault in NO_ANSWER:
            answered = None
        freed.append(Freed(lease.token, cost, outcome.kept, answered))
        if outcome.state is State.QUEUED and not outcome.again:
            queued.append(_entry(core, settlement, outcome.rev))
    await core.index.free(freed, now)
    if queued:
        await core.index.put(queued, now)
    if times:
        await core.index.learn_times(times)


def _count(core: Core, settled: list[tuple[Settlement, Settled | Stale]]) -> None:
    """Count successful attempts and ended jobs."""
    took: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
    ended: Counter[tuple[str, str, int]] = Counter()
    for settlement, outcome in settled:
        if isinstance(outcome, Stale) or outcome.again:
            continue
        lease, now = settlement.lease, settlement.now
        kind = lease.service, lease.tier, now
        if settlement.outcome is Outcome.COMPLETED and settlement.fault is None:
            took[kind].append(now - lease.started_at)
        if outcome.state in ENDED:
            ended[kind] += 1
    for (service, tier, at), each in took.items():
        core.activity.completed(service, tier, each, at)
    for (service, tier, at), n in ended.items():
        core.activity.finished(service, tier, at, n)


def _entry(core: Core, settlement: Settlement, rev: int) -> Entry:
    lease = settlement.lease
    step = WaitingStep(
        job=lease.job,
        rev=rev,
        lane=settlement.lane,
        band=settlement.band,
        tier=lease.tier,
        level=lease.level,
        ready_at=settlement.ready_at,
        waited=lease.waited,
        paid_at=lease.paid_at,
        user=lease.user,
        model=lease.model,
    )
    return core.place_in_line(step)


# --- the step succeeded --------------------------------------------------------------------------
def _done(core: Core, report: Done, now: int) -> Settlement:
    lease = report.lease
    output = json_text("result", report.output)
    too_large = _too_large(core, lease, output)
    if too_large is not None and quality_check.is_advisory(lease):
        output = json_text("result", quality_check.short(report.output))
    elif too_large is not None:
        return _ended(Failed(lease, Fault.RESULT_TOO_LARGE, too_large), Code.RESULT_TOO_LARGE, now)
    settlement = Settlement(
        lease,
        now,
        Move.COMPLETE,
        Outcome.COMPLETED,
        output=output,
        metrics=json_text("metrics", report.metrics) if report.metrics is not None else None,
    )
    if lease.at.quality_check is not None:
        settlement = _marked(settlement, report.output)
    if lease.last_step:
        return settlement
    step = lease.plan[lease.step + 1]
    waiting = Fact(EventType.WAITING, now, place(step.service, lease.step + 1, len(lease.plan)))
    return settlement._replace(
        move=Move.ADVANCE,
        facts=(Fact(EventType.STEP_COMPLETE, now, _place(lease)), waiting),
        timeout=step.timeout,
        ready_at=now,
        give_up_at=now + step.max_wait if step.max_wait else None,
        band=Band.SKIP if lease.skipped else Band.TIER,
        lane=step.lane,
    )


def _marked(settlement: Settlement, verdict: Json) -> Settlement:
    """The settlement of a check; after a rejection it says why, and the job goes on."""
    fault, message = quality_check.fault_in(settlement.lease, verdict) or (None, None)
    return settlement._replace(fault=fault, message=message)


def _too_large(core: Core, lease: Lease, output: str) -> str | None:
    limits = core.catalog.limits
    if len(output) > limits.result_bytes:
        return f"the result has {len(output)} bytes, at most {limits.result_bytes} are allowed"
    if lease.context:
        total = len(orjson.dumps(quality_check.counted_context(lease))) + len(output)
        if total > limits.context_bytes:
            return f"the context has {total} bytes, at most {limits.context_bytes} are allowed"
    return None


# --- the step failed -----------------------------------------------------------------------------
def _failed(core: Core, report: Failed, terms: FailureTerms, now: int) -> Settlement:
    lease, service = report.lease, core.service(report.lease.service)
    if lease.at.quality_check is not None and report.fault is Fault.QUALITY:
        return quality_check.rejected(core, report, now)
    not_before = max(terms.open_until.get(lease.token, 0), now + report.retry_after)
    verdict = judge(
        Tried(
            report.fault,
            lease.attempt,
            lease.at.max_attempts,
            lease.deadline - lease.started_at,
            lease.at.timeout,
            free=lease.job in terms.free,
        ),
        core.jitter.randrange(1000),
        lease.at.backoff or tuple(round(delay * SECOND) for delay in service.backoff),
    )
    if quality_check.is_advisory(lease) and not isinstance(verdict, Retry) and not report.ended_at:
        return _unjudged(core, report, now)
    settlement = _judged(core, report, verdict, max(now, not_before), now)
    if isinstance(verdict, Retry) and service.failover and lease.region is not None:
        probe_at, free = max(now, not_before), lease.job in terms.free
        settlement = leave_region(settlement, service, verdict.delay, probe_at, free=free)
    return settlement._replace(lease_until=report.ended_at or None)


def _unjudged(core: Core, report: Failed, now: int) -> Settlement:
    """An advisory check has failed for good: the job goes on without a verdict. Not for an expired
    lease: the statement that completes a job does not compare the lease's end."""
    done = _done(core, Done(report.lease, {"passed": None, "reason": report.message}), now)
    return done._replace(fault=report.fault, message=report.message)


def _judged(core: Core, report: Failed, verdict: Verdict, start: int, now: int) -> Settlement:
    match verdict:
        case Retry():
            return _retry(core, report, verdict, start, now)
        case Fail(code):
            return _ended(report, code, now)
        case Bury():
            return _ended(report, Code.MAX_ATTEMPTS, now)


def _retry(core: Core, report: Failed, verdict: Retry, start: int, now: int) -> Settlement:
    lease, service = report.lease, core.service(report.lease.service)
    ready_at = max(now, (report.ended_at or start) + verdict.delay)
    data = {
        **_place(lease),
        **_region(lease),
        "attempt": lease.attempt,
        "fault": str(report.fault),
        "again_at": ready_at,
    }
    front = service.retry_place is RetryPlace.FRONT
    return Settlement(
        lease=lease,
        now=now,
        move=Move.RETRY,
        outcome=report.outcome,
        facts=(Fact(EventType.JOB_RETRY, now, data),),
        fault=report.fault,
        message=report.message,
        attempt=verdict.attempt,
        timeout=verdict.timeout,
        ready_at=ready_at,
        give_up_at=ready_at + lease.at.max_wait if lease.at.max_wait else None,
        band=Band.SKIP if lease.skipped else Band.FRONT if front else Band.TIER,
        lane=lease.at.lane,
    )


def _ended(report: Failed, code: Code, now: int) -> Settlement:
    lease = report.lease
    data = {**_place(lease), **_region(lease), "code": str(code), "message": report.message}
    return Settlement(
        lease=lease,
        now=now,
        move=Move.BURY if code is Code.MAX_ATTEMPTS else Move.FAIL,
        outcome=report.outcome,
        facts=(Fact(EventType.JOB_FAILED, now, data),),
        fault=report.fault,
        message=report.message,
        error=Error(code, report.message),
    )


# --- given back ----------------------------------------------------------------------------------
def _given_back(report: GivenBack, now: int) -> Settlement:
    lease = report.lease
    return Settlement(
        lease=lease,
        now=now,
        move=Move.GIVE_BACK,
        outcome=Outcome.RELEASED,
        facts=(Fact(EventType.WAITING, now, _place(lease)),),
        attempt=lease.attempt - 1,
        timeout=lease.deadline - lease.started_at,
        ready_at=now,
        give_up_at=now + lease.at.max_wait if lease.at.max_wait else None,
        band=Band(lease.band),
        lane=lease.lane,
    )


def _region(lease: Lease) -> dict[str, Json]:
    """The region in which the attempt of an event ran, if it had one."""
    return {"region": lease.region} if lease.region is not None else {}


def _place(lease: Lease) -> dict[str, Json]:
    return place(lease.service, lease.step, len(lease.plan))
