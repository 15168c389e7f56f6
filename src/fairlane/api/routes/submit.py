"""Submitting: one job, or many at once. Answered after the durable commit."""

from __future__ import annotations

import re
import time
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope

from fairlane.api import answers, show
from fairlane.api.body import MOST_NODES, parse, read
from fairlane.api.door import Door
from fairlane.api.identity import Identity
from fairlane.api.invalid import invalid
from fairlane.api.problems import Problem, problem_of
from fairlane.api.requests import (
    IDEMPOTENCY_KEY,
    MOST_JOBS,
    BatchOutside,
    BatchRequest,
    JobRequest,
    key_on,
)
from fairlane.api.routing import Routes
from fairlane.api.task_shapes import SlotRequest, TaskRequest
from fairlane.engine.matrix import CellBudget
from fairlane.engine.views import Placement, unplaced
from fairlane.errors import Expired, FairlaneError, InvalidInput, UrlNotAllowed
from fairlane.ledger.shapes import Accepted, Replayed, SubmitOutcome
from fairlane.model.job import NewJob

routes = Routes("jobs")

KEY = re.compile(IDEMPOTENCY_KEY)
TRACE = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
NODES_IN_A_BATCH = 10 * MOST_NODES
MAX_EXPLAINED = 20


@routes.hot(
    "POST",
    "/api/v1/jobs",
    "client",
    takes=JobRequest,
    gives=answers.Accepted,
    status=202,
    also={200: {"model": answers.Accepted, "description": "Accepted before, with this key."}},
)
async def submit_job(scope: Scope, receive: Receive) -> Response:
    """Durable and in line when it is answered. With an `Idempotency-Key` it is safe to send
    again."""
    door: Door = scope["door"]
    identity: Identity = scope["identity"]
    job, outcome = await taken(scope, receive, JobRequest)
    if isinstance(outcome, Replayed):
        shown = await _known(door, identity, outcome)
        return show.answer(shown, 200, {**_location(outcome.job), "Idempotent-Replayed": "true"})
    placement = await placement_of(door, outcome, job)
    return show.answer(show.accepted(outcome.job, placement), 202, _location(outcome.job))


@routes.hot(
    "POST",
    "/api/v1/jobs:batch",
    "client",
    takes=BatchRequest,
    gives=answers.Batch,
    status=200,
)
async def submit_batch(scope: Scope, receive: Receive) -> Response:
    """Up to 1,000 jobs, each with its own outcome. With an `Idempotency-Key` each job has that key
    and its number."""
    door: Door = scope["door"]
    identity: Identity = scope["identity"]
    door.crowd.check()
    body = parse(await read(scope, receive, door.bounds), NODES_IN_A_BATCH)
    key, trace = marks(scope)
    results: list[dict[str, Any]] = []
    jobs: list[tuple[int, NewJob]] = []
    requests = _each(body)
    door.rates.batch(identity, len(requests), door.engine.core.now())
    cells = CellBudget(max(MOST_JOBS, door.engine.core.catalog.limits.cells))
    for i, request in enumerate(requests):
        results.append({})
        try:
            if isinstance(request, Problem):
                raise request
            cells.take(request.matrix or {})
            own = key_on(f"batch {i}", key)
            job = await allowed_job(door, identity, request, own, trace)
            check_room(door, identity, job)
            jobs.append((i, job))
        except (Problem, InvalidInput) as error:
            results[i] = _error(door, problem_of(error))
    with door.crowd.inside(len(jobs)):
        outcomes = await door.engine.submit_many([job for _, job in jobs], identity.caller)
    for (i, _), outcome in zip(jobs, outcomes, strict=True):
        results[i] = await _result(door, identity, outcome)
    return show.answer({"results": results})


def _each(body: Any) -> list[JobRequest | Problem]:
    """Every job of a batch, or what is wrong with it. Most batches are good as a whole."""
    try:
        return list(BatchRequest.model_validate(body).jobs)
    except ValidationError:
        return _one_by_one(validated(BatchOutside, body).jobs)


def _one_by_one(bodies: list[Any]) -> list[JobRequest | Problem]:
    """Names that may have been meant are looked for only in the first jobs that are wrong."""
    found: list[JobRequest | Problem] = []
    wrong = 0
    for body in bodies:
        try:
            found.append(JobRequest.model_validate(body))
        except ValidationError as error:
            known = JobRequest.model_fields if wrong < MAX_EXPLAINED else ()
            found.append(invalid(_errors(error), known))
            wrong += 1
    return found


async def taken(
    scope: Scope, receive: Receive, model: type[JobRequest] | type[TaskRequest]
) -> tuple[NewJob, Accepted | Replayed]:
    """The one job of a request, and what became of it. Who was let in counts already, and is not
    refused any more."""
    door: Door = scope["door"]
    identity: Identity = scope["identity"]
    if "let_in" in scope:
        job = await _asked(scope, receive, model)
        return job, await door.engine.submit(job, identity.caller)
    door.crowd.check()
    job = await _asked(scope, receive, model)
    check_room(door, identity, job)
    return job, await accepted(door, identity, job)


async def _asked(
    scope: Scope, receive: Receive, model: type[JobRequest] | type[TaskRequest]
) -> NewJob:
    door: Door = scope["door"]
    request = validated(model, parse(await read(scope, receive, door.bounds)))
    return await allowed_job(door, scope["identity"], request, *marks(scope))


def validated(model: type[Any], body: Any) -> Any:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise invalid(_errors(error), model.model_fields) from None


def _errors(error: ValidationError) -> list[Any]:
    return list(error.errors(include_url=False, include_input=False))


async def allowed_job(
    door: Door,
    identity: Identity,
    request: JobRequest | TaskRequest | SlotRequest,
    key: str | None,
    trace: str | None,
) -> NewJob:
    """Who it is for, and how urgent it is, says the credential unless it may say otherwise."""
    if request.user_id is not None and not identity.act_as:
        raise not_allowed("user_id", "act_as")
    if request.priority is not None and not identity.set_priority:
        raise not_allowed("priority", "set_priority")
    if isinstance(request, TaskRequest) and None not in (key, request.idempotency_key):
        _check_same_key(key, request.idempotency_key)
    if request.callback_url is not None:
        await _check_callback(door, request.callback_url)
    return request.new_job(key, trace)


def check_room(door: Door, identity: Identity, job: NewJob) -> None:
    """Raises if one of its tier has to wait outside."""
    names = door.engine.core.catalog.tiers.names
    tier = door.engine.likely_tier(identity.tenant, job.user, job.tier)
    door.crowd.check(names.index(tier) if tier in names else 0, len(names))


async def _check_callback(door: Door, url: str) -> None:
    egress = door.egress if await door.keyring.development() else door.egress.with_keys()
    try:
        egress.check(url)
    except UrlNotAllowed as error:
        raise Problem(422, error.code, str(error), more={"field": "callback_url"}) from None


async def accepted(door: Door, identity: Identity, job: NewJob) -> Accepted | Replayed:
    """Durable, and counted among the submits under way until it is."""
    with door.crowd.inside():
        return await door.engine.submit(job, identity.caller)


def _check_same_key(header: str | None, body: str | None) -> None:
    if header != body:
        raise Problem(
            422,
            "id_mismatch",
            "the header Idempotency-Key and idempotency_key in the body differ; send one of them, "
            "or the same twice",
            more={"field": "idempotency_key"},
        )


def not_allowed(field: str, right: str) -> Problem:
    return Problem(
        422,
        "field_not_allowed",
        f"{field} can only be set with a key that has {right}",
        more={"field": field},
    )


def marks(scope: Scope) -> tuple[str | None, str | None]:
    """The idempotency key and the trace."""
    key = trace = None
    for name, value in scope["headers"]:
        if name == b"idempotency-key":
            key = value.decode("latin-1")
            if not KEY.match(key):
                raise Problem(
                    400,
                    "invalid_idempotency_key",
                    "a key has 1 to 255 letters, digits, and _ - : .",
                )
        elif name == b"traceparent":
            found = TRACE.match(value.decode("latin-1"))
            trace = found[1] if found else None
    return key, trace


def _location(job: str) -> dict[str, str]:
    return {"Location": f"/api/v1/jobs/{job}"}


# --- what became of it ---------------------------------------------------------------------------
async def placement_of(door: Door, accepted: Accepted, job: NewJob) -> Placement:
    """Nobody counts who is ahead while others have to be refused: that would cost a sixth of them
    their place."""
    began = time.perf_counter()
    if not door.crowd.room_for_all or not door.counting.allows(began):
        return unplaced(accepted.tier)
    placement = await door.engine.placement(accepted, job)
    door.counting.spent(began, time.perf_counter())
    return placement


async def _result(door: Door, identity: Identity, outcome: SubmitOutcome) -> dict[str, Any]:
    match outcome:
        case Accepted():
            return {"status": 202, "job": show.accepted(outcome.job, unplaced(outcome.tier))}
        case Replayed():
            return {"status": 200, "job": await _known(door, identity, outcome)}
        case FairlaneError():
            return _error(door, problem_of(outcome, door.engine.core.now()))


def _error(door: Door, problem: Problem) -> dict[str, Any]:
    door.meter.refused(problem.status_code, problem.code)
    error = {"code": problem.code, "detail": problem.detail, **problem.more}
    return {"status": problem.status_code, "error": error}


async def _known(door: Door, identity: Identity, outcome: Replayed) -> dict[str, Any]:
    """The job as it is now, or only how it ended if its record is gone."""
    try:
        return show.known(await door.engine.view(outcome.job, identity.tenant))
    except Expired:
        gone = dict.fromkeys(("priority", "effective_priority", "position", "eta"))
        return {"job_id": outcome.job, "status": "expired", **gone}
