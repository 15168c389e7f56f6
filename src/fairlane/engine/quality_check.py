"""Quality checks (output validation): what a check's output says, and what a rejection does to the
checked step. Decision 20 has the table and every interleaving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.engine.core import Core
from fairlane.ledger.messages import Settlement
from fairlane.model.attempt import Fault
from fairlane.model.event import EventType, Fact, place
from fairlane.model.job import Band, Error, Json
from fairlane.model.lease import Lease
from fairlane.model.quality_check import OnFail, verdict_of
from fairlane.model.service import RetryPlace
from fairlane.model.state import Code, Move
from fairlane.model.step import attempts_name, context_name

if TYPE_CHECKING:
    from fairlane.engine.settle import Failed

NO_REASON = "the quality check rejected the output"


def is_advisory(lease: Lease) -> bool:
    """Whether the step is a check that only marks the job."""
    return lease.at.quality_check is OnFail.MARK


def fault_in(lease: Lease, output: Json) -> tuple[Fault, str] | None:
    """The fault and message that this output of a check stands for; None if the check passed."""
    verdict = verdict_of(output)
    if verdict is None or verdict.passed is None:
        message = (
            f'{lease.service} answered without a verdict; a quality check answers {{"passed": true '
            'or false, "reason": …}'
        )
        return Fault.SERVICE_ERROR, message
    return None if verdict.passed else (Fault.QUALITY, verdict.reason or NO_REASON)


def counted_context(lease: Lease) -> dict[str, Json]:
    """The outputs that count against the limit of a context when this step brings another. Those of
    advisory checks do not count for other steps: such a check must not fail the job."""
    marks = {
        context_name(number, step.service)
        for number, step in enumerate(lease.plan)
        if step.quality_check is OnFail.MARK
    }
    if not marks or is_advisory(lease):
        return lease.context
    return {name: output for name, output in lease.context.items() if name not in marks}


def short(output: Json) -> Json:
    """The verdict without the rest of the output. It is short enough to be stored beyond the limits
    of a result and a context."""
    verdict = verdict_of(output)
    return None if verdict is None else {"passed": verdict.passed, "reason": verdict.reason}


def rejected(core: Core, report: Failed, now: int) -> Settlement:
    """The check has rejected the output of the step before it: that step runs again, or the job
    ends there. No back-off: nothing is ill, and the slot would idle."""
    lease, number = report.lease, report.lease.step - 1
    step, message = lease.plan[number], report.message or NO_REASON
    used = lease.context.get(attempts_name(number, step.service), 1)
    settlement = Settlement(
        lease=lease,
        now=now,
        move=Move.FAIL,
        outcome=report.outcome,
        fault=Fault.QUALITY,
        message=message,
        attempt=used,
        step=number,
    )
    at = place(step.service, number, len(lease.plan))
    if lease.at.quality_check is OnFail.FAIL:
        return _ended(settlement, Error(Code.QUALITY, message), at)
    if used >= step.max_attempts:
        error = Error(Code.MAX_ATTEMPTS, f"quality check: {message}")
        return _ended(settlement._replace(move=Move.BURY), error, at)
    data = {
        **at,
        "attempt": used,
        "fault": str(Fault.QUALITY),
        "again_at": now,
        "message": message,
        "checked_by": lease.service,
    }
    front = core.service(step.service).retry_place is RetryPlace.FRONT
    return settlement._replace(
        move=Move.RETRY,
        facts=(Fact(EventType.JOB_RETRY, now, data),),
        timeout=step.timeout,
        ready_at=now,
        give_up_at=now + step.max_wait if step.max_wait else None,
        band=Band.SKIP if lease.skipped else Band.FRONT if front else Band.TIER,
        lane=step.lane,
    )


def _ended(settlement: Settlement, error: Error, at: dict[str, Json]) -> Settlement:
    data = {**at, "code": str(error.code), "message": error.message}
    fact = Fact(EventType.JOB_FAILED, settlement.now, data)
    return settlement._replace(facts=(fact,), error=error)
