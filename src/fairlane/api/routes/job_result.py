"""The result route: the result of a job alone, as JSON or as the bytes of a file."""

from __future__ import annotations

from typing import Any

from fairlane.api.auth.ownership import checked
from fairlane.api.context import Here
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routes.jobs import JobId
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import AttachmentResponse, TypedResponse
from fairlane.errors import JobCancelled, JobDead, JobFailed
from fairlane.model.file_result import UNKNOWN_TYPE, FileResult
from fairlane.model.job import Job
from fairlane.model.job_result import result_of
from fairlane.model.state import State

routes = Routes("jobs")

WITHOUT_RESULT = {
    State.FAILED: JobFailed,
    State.DEAD: JobDead,
    State.CANCELLED: JobCancelled,
}


@routes.add(
    "GET",
    "/api/v1/jobs/{job_id}/result",
    "read",
    example=examples.JOB_RESULT,
    texts={UNKNOWN_TYPE: "RIFF…"},
    problems=(404, 409, 410),
)
async def get_job_result(call: Here, job_id: JobId) -> TypedResponse[Any] | AttachmentResponse:
    """Get the result of a completed job: the output of its last step as JSON, or the bytes of a
    file as an attachment."""
    job = await call.engine.get(checked(job_id), call.tenant)
    if job.state is not State.COMPLETED:
        raise _no_result(job)
    _, context = await call.engine.payload(job.id)
    result = result_of(job, context)
    file = FileResult.read(result)
    return serializers.answer(result) if file is None else AttachmentResponse(file)


def _no_result(job: Job) -> ProblemDetails:
    kind = WITHOUT_RESULT.get(job.state)
    if kind is None:
        message = f"job {job.id} is {job.state} and has no result yet; follow its events"
        return ProblemDetails(409, "not_finished", message, more={"state": job.state})
    reason, said = (job.error.code, job.error.message) if job.error else ("", "")
    more = {"state": job.state, "error": serializers.error(job.error)}
    return ProblemDetails(409, kind.code, str(kind(job.id, reason, said)), more=more)
