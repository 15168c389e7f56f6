"""Why one job does not run: the reasons of `/explain` as findings, in the same words."""

from __future__ import annotations

from fairlane.doctor.checks import by_name
from fairlane.doctor.facts import Here
from fairlane.doctor.findings import Finding, FindingVerdict
from fairlane.engine.queries import JobDetail, WaitReason
from fairlane.model.state import State

CATEGORY = "job"
CHECK_OF_REASON = {
    "unrunnable": ("no-worker", FindingVerdict.WRONG),
    "closed": ("breaker-open", FindingVerdict.WRONG),
    "paused": ("paused", FindingVerdict.WARNING),
    "held": ("stuck-slot", FindingVerdict.WARNING),
}
"""Reasons that stand for a fault. All other reasons are the normal life of a queue."""

JOB_PAGE = "/docs/checks#job"


def explained(seen: JobDetail, here: Here, *, indexed: bool) -> list[Finding]:
    """Findings about a job. `indexed`: the index knows the queued job."""
    job = seen.job
    show = f"fairlane jobs show {job.id}"
    if job.state is State.RUNNING:
        runs = here.lasts(here.now - (job.started_at or here.now))
        return [
            _finding(
                seen, FindingVerdict.OK, f"runs since {runs} ({job.current.service})", runs, show
            )
        ]
    if job.state is not State.QUEUED:
        return [_ended(seen)]
    if job.fan_out:
        text = f"a fan-out: {job.cells_left} of {job.cells} executions have not ended"
        return [_finding(seen, FindingVerdict.OK, text, str(job.cells_left), show)]
    if not indexed:
        text = "the ledger has the job queued and the index does not know it"
        command = "fairlane doctor --only index-drift --wait 60"
        return [_finding(seen, FindingVerdict.WRONG, text, "0 places", command, "index-drift")]
    return [_of_reason(seen, each, here) for each in seen.reasons] or [_next(seen, here)]


def _of_reason(seen: JobDetail, reason: WaitReason, here: Here) -> Finding:
    check, verdict = CHECK_OF_REASON.get(reason.code, ("job", FindingVerdict.OK))
    service = seen.job.current.service
    command = {
        "no-worker": "fairlane workers list --all",
        "breaker-open": "fairlane services list",
        "paused": f"fairlane services unpause {service}",
    }.get(check, f"fairlane jobs explain {seen.job.id}")
    figure = f"position {seen.position}" if seen.position else here.lasts(seen.waited)
    return _finding(seen, verdict, reason.text, figure, command, check)


def _next(seen: JobDetail, here: Here) -> Finding:
    waited = here.lasts(seen.waited)
    text = f"nothing keeps it: it is next, and waits since {waited}"
    command = f"fairlane jobs explain {seen.job.id}"
    return _finding(seen, FindingVerdict.OK, text, waited, command)


def _ended(seen: JobDetail) -> Finding:
    job = seen.job
    failed = job.state in (State.FAILED, State.DEAD)
    why = f": {job.error.message}" if failed and job.error is not None else ""
    again = "replay" if job.state is State.DEAD else "resume"
    command = f"fairlane jobs {again if failed else 'show'} {job.id}"
    verdict = FindingVerdict.WARNING if failed else FindingVerdict.OK
    return _finding(seen, verdict, f"has ended: {job.state}{why}", str(job.state), command)


def _finding(
    seen: JobDetail,
    verdict: FindingVerdict,
    text: str,
    figure: str,
    command: str,
    check: str = "job",
) -> Finding:
    known = by_name().get(check)
    page = known.page if known is not None else JOB_PAGE
    return Finding(check, CATEGORY, verdict, seen.job.id, text, figure, command, page)
