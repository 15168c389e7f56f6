"""Submit routes: one job, or a batch. The response is sent after the durable commit."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.types import Receive, Scope

from fairlane.api.auth.roles import Identity
from fairlane.api.context import AppContext
from fairlane.api.http.body_limits import MAX_JSON_NODES, parse, read
from fairlane.api.http.problem_details import ProblemDetails, problem_of
from fairlane.api.http.validation_errors import invalid
from fairlane.api.overload.limiter import Place
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.generation_requests import GenerationRequest
from fairlane.api.schemas.inference_requests import InferenceRequest
from fairlane.api.schemas.requests import (
    IDEMPOTENCY_KEY,
    MAX_BATCH_JOBS,
    BatchRequest,
    JobRequestBody,
    UncheckedBatchRequest,
    key_on,
)
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.task_requests import SlotRequest, TaskRequest
from fairlane.engine.fanout_limits import CellBudget
from fairlane.engine.queries import Placement, unplaced
from fairlane.errors import Expired, FairlaneError, InvalidInput, UrlNotAllowed
from fairlane.ledger.messages import Replayed, SubmissionAccepted, SubmitOutcome
from fairlane.model.job import NewJob
from fairlane.responses import AcceptedResponse, BatchResponse, BatchResultResponse
from fairlane.trace_context import read_traceparent

routes = Routes("jobs")

KEY = re.compile(IDEMPOTENCY_KEY)
MAX_BATCH_NODES = 10 * MAX_JSON_NODES
MAX_EXPLAINED = 20
Sent = TypeVar("Sent", JobRequestBody, TaskRequest, GenerationRequest, InferenceRequest)


@routes.hot(
    "POST",
    "/api/v1/jobs",
    "client",
    takes=JobRequestBody,
    example=examples.ACCEPTED,
    status=202,
    also={200: "Accepted before with the same Idempotency-Key."},
)
async def submit_job(scope: Scope, receive: Receive) -> TypedResponse[AcceptedResponse]:
    """Submit a job. It is durable and queued when the response is sent. With an `Idempotency-Key`
    the request can safely be repeated."""
    app_context: AppContext = scope["app_context"]
    identity: Identity = scope["identity"]
    job, outcome = await taken(scope, receive, JobRequestBody)
    if isinstance(outcome, Replayed):
        response = await _known(app_context, identity, outcome)
        return serializers.answer(
            response, 200, {**_location(outcome.job), "Idempotent-Replayed": "true"}
        )
    placement = await placement_of(app_context, outcome, job)
    return serializers.answer(
        serializers.accepted(outcome.job, placement), 202, _location(outcome.job)
    )


@routes.hot(
    "POST",
    "/api/v1/jobs:batch",
    "client",
    takes=BatchRequest,
    example=examples.BATCH,
    status=200,
)
async def submit_batch(scope: Scope, receive: Receive) -> TypedResponse[BatchResponse]:
    """Submit up to 1,000 jobs, each with its own outcome. An `Idempotency-Key` covers the whole
    batch: each job gets the key and its number."""
    app_context: AppContext = scope["app_context"]
    body = await read(scope, receive, app_context.bounds)
    async with app_context.limiter.place(len(body)) as place:
        results = await _submit_each(scope, place, _each(parse(body, MAX_BATCH_NODES)))
    return serializers.answer({"results": results})


async def _submit_each(
    scope: Scope, place: Place, requests: Sequence[JobRequestBody | ProblemDetails]
) -> list[BatchResultResponse]:
    """Submits the jobs of a batch in one transaction. Returns the outcome of each."""
    app_context: AppContext = scope["app_context"]
    identity: Identity = scope["identity"]
    key, trace = key_and_trace(scope)
    results: list[BatchResultResponse] = []
    jobs: list[tuple[int, NewJob]] = []
    app_context.rate_limiter.batch(identity, len(requests), app_context.engine.clock.now())
    cells = CellBudget(max(MAX_BATCH_JOBS, app_context.engine.catalog.limits.cells))
    for i, request in enumerate(requests):
        results.append({"status": 0})
        try:
            if isinstance(request, ProblemDetails):
                raise request
            cells.take(request.matrix or {})
            own = key_on(f"batch {i}", key)
            job = await allowed_job(app_context, identity, request, own, trace)
            check_tier(app_context, identity, job, place)
            jobs.append((i, job))
        except (ProblemDetails, InvalidInput) as error:
            results[i] = _error(app_context, problem_of(error))
    place.holds(len(jobs))
    outcomes = await app_context.engine.submit_many([job for _, job in jobs], identity.caller)
    for (i, _), outcome in zip(jobs, outcomes, strict=True):
        results[i] = await _result(app_context, identity, outcome)
    return results


def _each(body: Any) -> list[JobRequestBody | ProblemDetails]:
    """Returns every job of a batch, or its validation error. Most batches are valid as a whole."""
    try:
        return list(BatchRequest.model_validate(body).jobs)
    except ValidationError:
        return _one_by_one(validated(UncheckedBatchRequest, body).jobs)


def _one_by_one(bodies: list[Any]) -> list[JobRequestBody | ProblemDetails]:
    """Validates each job. Only the first `MAX_EXPLAINED` invalid jobs get suggestions for field
    names, which are slow to compute."""
    found: list[JobRequestBody | ProblemDetails] = []
    wrong = 0
    for body in bodies:
        try:
            found.append(JobRequestBody.model_validate(body))
        except ValidationError as error:
            known = JobRequestBody.model_fields if wrong < MAX_EXPLAINED else ()
            found.append(invalid(_errors(error), known))
            wrong += 1
    return found


async def taken(
    scope: Scope,
    receive: Receive,
    model: type[Sent],
) -> tuple[NewJob, SubmissionAccepted | Replayed]:
    """Submits the one job of a request. Returns it and its outcome."""
    _, job, outcome = await taken_request(scope, receive, model)
    return job, outcome


async def taken_request(
    scope: Scope, receive: Receive, model: type[Sent]
) -> tuple[Sent, NewJob, SubmissionAccepted | Replayed]:
    """Submits the one job of a request. Returns the request, the job and its outcome. The body is
    read before the request takes a place in the admission limiter, so that a slow body holds
    none."""
    app_context: AppContext = scope["app_context"]
    identity: Identity = scope["identity"]
    body = await read(scope, receive, app_context.bounds)
    async with app_context.limiter.place(len(body)) as place:
        request: Sent = validated(model, parse(body))
        job = await allowed_job(app_context, identity, request, *key_and_trace(scope))
        check_tier(app_context, identity, job, place)
        return request, job, await app_context.engine.submit(job, identity.caller)


def validated(model: type[Any], body: Any) -> Any:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise invalid(_errors(error), model.model_fields) from None


def _errors(error: ValidationError) -> list[Any]:
    return list(error.errors(include_url=False, include_input=False))


async def allowed_job(
    app_context: AppContext,
    identity: Identity,
    request: JobRequestBody | TaskRequest | SlotRequest | GenerationRequest | InferenceRequest,
    key: str | None,
    trace: str | None,
) -> NewJob:
    """Returns the job to submit. Only a key with `act_as` may name a user, and only a key with
    `set_priority` a tier."""
    if request.user_id is not None and not identity.act_as:
        raise not_allowed("user_id", "act_as")
    if request.priority is not None and not identity.set_priority:
        raise not_allowed("priority", "set_priority")
    if isinstance(request, TaskRequest) and None not in (key, request.idempotency_key):
        _check_same_key(key, request.idempotency_key)
    if request.callback_url is not None:
        await _check_callback(app_context, request.callback_url)
    return request.new_job(key, trace)


def check_tier(app_context: AppContext, identity: Identity, job: NewJob, place: Place) -> None:
    """Raises if the admission limiter now refuses jobs of this job's tier."""
    names = app_context.engine.catalog.tiers.names
    tier = app_context.engine.likely_tier(identity.tenant, job.user, job.tier)
    place.check(names.index(tier) if tier in names else 0, len(names))


async def _check_callback(app_context: AppContext, url: str) -> None:
    egress = (
        app_context.egress
        if await app_context.key_cache.development()
        else app_context.egress.with_keys()
    )
    try:
        egress.check(url)
    except UrlNotAllowed as error:
        raise ProblemDetails(422, error.code, str(error), more={"field": "callback_url"}) from None


def _check_same_key(header: str | None, body: str | None) -> None:
    if header != body:
        raise ProblemDetails(
            422,
            "id_mismatch",
            "the header Idempotency-Key and idempotency_key in the body differ; send one of them, "
            "or the same twice",
            more={"field": "idempotency_key"},
        )


def not_allowed(field: str, right: str) -> ProblemDetails:
    return ProblemDetails(
        422,
        "field_not_allowed",
        f"{field} can only be set with a key that has {right}; create one with: "
        f"fairlane keys create --{right.replace('_', '-')}",
        more={"field": field},
    )


def key_and_trace(scope: Scope) -> tuple[str | None, str | None]:
    """Returns the idempotency key and the trace id of the request's headers."""
    key = trace = None
    for name, value in scope["headers"]:
        if name == b"idempotency-key":
            key = value.decode("latin-1")
            if not KEY.match(key):
                raise ProblemDetails(
                    400,
                    "invalid_idempotency_key",
                    "a key has 1 to 255 letters, digits, and _ - : .",
                )
        elif name == b"traceparent":
            trace = read_traceparent(value.decode("latin-1"))
    return key, trace


def _location(job: str) -> dict[str, str]:
    return {"Location": f"/api/v1/jobs/{job}"}


# --- outcomes ------------------------------------------------------------------------------------
async def placement_of(
    app_context: AppContext, accepted: SubmissionAccepted, job: NewJob
) -> Placement:
    """Computes the queue position, unless the process is busy: it would reduce the throughput of
    submits by a sixth."""
    began = time.perf_counter()
    if app_context.limiter.is_busy or not app_context.counting.allows(began):
        return unplaced(accepted.tier)
    placement = await app_context.engine.placement(accepted, job)
    app_context.counting.spent(began, time.perf_counter())
    return placement


async def _result(
    app_context: AppContext, identity: Identity, outcome: SubmitOutcome
) -> BatchResultResponse:
    match outcome:
        case SubmissionAccepted():
            return {"status": 202, "job": serializers.accepted(outcome.job, unplaced(outcome.tier))}
        case Replayed():
            return {"status": 200, "job": await _known(app_context, identity, outcome)}
        case FairlaneError():
            return _error(app_context, problem_of(outcome, app_context.engine.clock.now()))


def _error(app_context: AppContext, problem: ProblemDetails) -> BatchResultResponse:
    app_context.instrumentation.refused(problem.status_code, problem.code)
    error = {"code": problem.code, "detail": problem.detail, **problem.more}
    return {"status": problem.status_code, "error": error}


async def _known(
    app_context: AppContext, identity: Identity, outcome: Replayed
) -> AcceptedResponse:
    """Returns the job as it is now, or the status `expired` if its record was removed."""
    try:
        return serializers.known(await app_context.engine.view(outcome.job, identity.tenant))
    except Expired:
        return {
            "job_id": outcome.job,
            "status": "expired",
            "priority": None,
            "effective_priority": None,
            "position": None,
            "eta": None,
        }
