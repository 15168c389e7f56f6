"""Generation routes: submit, look at and cancel jobs of the service `generate`, in the words of a
generation queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Receive, Scope

from fairlane.api.auth.ownership import checked
from fairlane.api.auth.roles import Identity
from fairlane.api.context import AppContext, Here
from fairlane.api.http.problem_details import problem_of
from fairlane.api.routes.jobs import IdempotencyKey, JobId, operation
from fairlane.api.routes.submit import placement_of, taken
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, generation, serializers
from fairlane.api.schemas.generation_requests import GenerationRequest
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.states import GENERATION_STATUSES
from fairlane.errors import Expired, FairlaneError
from fairlane.ledger.messages import Replayed
from fairlane.responses import (
    GenerationAcceptedResponse,
    GenerationResponse,
    GenerationStateResponse,
)

routes = Routes("generation")

SENTENCES = {
    "too_many_pending": "Queue limit reached for your tier",
    "too_many_this_hour": "Hourly limit reached for your tier",
    "duration_too_long": "Duration exceeds your tier limit",
    "queue_full": "Queue is full",
    "too_many_users": "Too many users for this key",
}
"""What an end user is told, by error code. It is the member `error` of the problem."""


@contextmanager
def generation_words(now: int) -> Iterator[None]:
    """Adds the sentence for the end user to an error, and says states as generations do."""
    try:
        yield
    except FairlaneError as error:
        problem = problem_of(error, now)
        if problem.code in SENTENCES:
            problem.more["error"] = SENTENCES[problem.code]
        for name in {"state", "final_status"} & problem.more.keys():
            problem.more[name] = GENERATION_STATUSES.get(problem.more[name], problem.more[name])
        raise problem from None


@routes.hot(
    "POST",
    "/generate",
    "client",
    takes=GenerationRequest,
    example=examples.GENERATION_ACCEPTED,
    status=202,
    also={200: "Accepted before with the same Idempotency-Key."},
)
async def submit_generation(
    scope: Scope, receive: Receive
) -> TypedResponse[GenerationAcceptedResponse]:
    """Submit a generation. It is durable and queued when the response is sent. A refusal has a
    sentence for the end user in `error`, beside `code`."""
    app_context: AppContext = scope["app_context"]
    identity: Identity = scope["identity"]
    with generation_words(app_context.engine.clock.now()):
        job, outcome = await taken(scope, receive, GenerationRequest)
    location = {"Location": f"/generate/{outcome.job}"}
    if isinstance(outcome, Replayed):
        response = await _known(app_context, identity, outcome.job)
        return serializers.answer(response, 200, {**location, "Idempotent-Replayed": "true"})
    placement = await placement_of(app_context, outcome, job)
    return serializers.answer(generation.accepted(outcome.job, placement), 202, location)


async def _known(
    app_context: AppContext, identity: Identity, job_id: str
) -> GenerationAcceptedResponse:
    try:
        return generation.known(await app_context.engine.view(job_id, identity.tenant))
    except Expired:
        return generation.expired(job_id)


@routes.add("GET", "/generate/{job_id}", "read", example=examples.GENERATION, problems=(404, 410))
async def get_generation(call: Here, job_id: JobId) -> TypedResponse[GenerationResponse]:
    """Get a generation with its position, its progress and its result."""
    with generation_words(call.engine.clock.now()):
        seen = await call.engine.view(checked(job_id), call.tenant)
    costs = await call.engine.skip_costs([seen.job])
    return serializers.answer(generation.detail(seen, costs.get(seen.job.id)))


@routes.add(
    "DELETE",
    "/generate/{job_id}",
    "client",
    example=examples.GENERATION_CANCELLED,
    problems=(404, 409, 410),
)
async def cancel_generation(
    call: Here, job_id: JobId, key: IdempotencyKey = None
) -> TypedResponse[GenerationStateResponse]:
    """Cancel a generation at once and permanently, also while it is processed: its worker is told
    to stop, and its result is refused."""
    with generation_words(call.engine.clock.now()):
        await call.engine.cancel(checked(job_id), call.tenant, operation(call, key))
    return serializers.answer({"id": job_id, "status": "cancelled"})
