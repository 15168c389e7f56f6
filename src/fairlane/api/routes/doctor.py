"""Doctor routes: health checks of the whole system, of one job, and the support bundle."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from fairlane.api.auth.ownership import checked
from fairlane.api.context import Here
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.logs import recent_lines
from fairlane.api.routes.jobs import JobId
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.doctor.bundle import audit_heads, facts_shown, settings_shown, versions
from fairlane.doctor.checks import CHECKS
from fairlane.doctor.doctor import Examination
from fairlane.doctor.findings import Finding
from fairlane.responses import BundleResponse, DoctorResponse, FindingResponse

routes = Routes("administration")

MAX_NAMES_LENGTH = 2_000
AUDITED_CHANGES = 100


@routes.add("GET", "/admin/doctor", "admin", example=examples.DOCTOR, problems=(404,))
async def examine(
    call: Here,
    only: Annotated[
        str | None,
        Query(max_length=MAX_NAMES_LENGTH, description="Names of checks, separated by commas."),
    ] = None,
    service: Annotated[str | None, Query(max_length=200)] = None,
) -> TypedResponse[DoctorResponse]:
    """Run all health checks, `only` these, or those about one service. Read-only. Each check takes
    at most 2 s; what could not be looked at is `unknown`."""
    names = {each.strip() for each in only.split(",")} if only else set[str]()
    known = {each.name for each in CHECKS}
    if names - known:
        unknown = ", ".join(sorted(names - known))
        raise ProblemDetails(
            422, "invalid_input", f"no check {unknown}; known: {', '.join(sorted(known))}"
        )
    if service is not None and not call.engine.catalog.knows(service):
        raise ProblemDetails(404, "not_found", f'no service "{service}"')
    found = await call.app_context.doctor.examine(names, service)
    return serializers.answer(_response(found))


@routes.add(
    "GET", "/admin/doctor/jobs/{job_id}", "admin", example=examples.DOCTOR_JOB, problems=(404, 410)
)
async def examine_job(call: Here, job_id: JobId) -> TypedResponse[DoctorResponse]:
    """Say why a job does not run, in the words of its `explain` route, and what is wrong with its
    service."""
    found = await call.app_context.doctor.job(checked(job_id), call.tenant)
    return serializers.answer(_response(found))


@routes.add("GET", "/admin/doctor/bundle", "admin", example=examples.BUNDLE)
async def support_bundle(call: Here) -> TypedResponse[BundleResponse]:
    """Return what another person needs to understand a fault: versions, settings, findings, facts,
    metrics, the last log lines and audit heads. It has no secrets, payloads or user names."""
    context = call.app_context
    found = await context.doctor.examine()
    metrics = await context.instrumentation.text(leaving=context.draining)
    return serializers.answer(
        {
            "versions": versions(),
            "settings": settings_shown(context.settings, call.engine.catalog),
            "findings": [finding_response(each) for each in found.findings],
            "facts": facts_shown(found.facts),
            "audit": audit_heads(await call.engine.audit(AUDITED_CHANGES)),
            "metrics": metrics,
            "log": recent_lines(),
        }
    )


def _response(found: Examination) -> DoctorResponse:
    return {
        "findings": [finding_response(each) for each in found.findings],
        "seconds": round(found.seconds, 3),
    }


def finding_response(finding: Finding) -> FindingResponse:
    return {
        "check": finding.check,
        "category": finding.category,
        "verdict": finding.verdict.value,
        "subject": finding.subject,
        "text": finding.text,
        "figure": finding.figure,
        "command": finding.command,
        "page": finding.page,
    }
