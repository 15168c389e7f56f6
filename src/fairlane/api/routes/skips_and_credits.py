"""Routes of paid skips and credits: the quote, the payment, the balance."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Body, Path

from fairlane.api.auth.ownership import checked
from fairlane.api.context import Here
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routes.jobs import IdempotencyKey, JobId, operation
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.requests import SkipRequestBody, User
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.timestamps import seconds
from fairlane.errors import WrongState
from fairlane.model.state import Move, State
from fairlane.responses import BalanceResponse, QuoteResponse, SecondsSavedResponse, SkipResponse

routes = Routes("credits")

CURRENCY: Literal["aura"] = "aura"
UserId = Annotated[User, Path(examples=["ada"])]


@routes.add(
    "GET",
    "/api/v1/jobs/{job_id}/skip",
    "read",
    example=examples.QUOTE,
    problems=(404, 409, 410),
)
async def quote_skip(call: Here, job_id: JobId) -> TypedResponse[QuoteResponse]:
    """Quote the price and the benefit of a skip to the front. The price is 0 once it is paid."""
    job = await call.engine.get(checked(job_id), call.tenant)
    if job.state is not State.QUEUED:
        raise WrongState(job.id, job.state, Move.SKIP)
    quote = await call.engine.quote(job_id, call.tenant)
    saved: SecondsSavedResponse | None = None
    if quote.saves is not None:
        saved = {"p50": seconds(quote.saves.p50), "p90": seconds(quote.saves.p90)}
    return serializers.answer(
        {
            "price": quote.price,
            "currency": CURRENCY,
            "balance": quote.balance,
            "seconds_saved": saved,
        }
    )


@routes.add(
    "POST",
    "/api/v1/jobs/{job_id}/skip",
    "client",
    example=examples.SKIPPED,
    problems=(402, 404, 409, 410),
)
async def skip_line(
    call: Here,
    job_id: JobId,
    body: Annotated[SkipRequestBody | None, Body()] = None,
    key: IdempotencyKey = None,
) -> TypedResponse[SkipResponse]:
    """Pay to skip to the front. It is charged once, and refunded in full if the job ends without a
    completed step."""
    most = body.max_price if body is not None else None
    paid = await call.engine.skip(checked(job_id), call.tenant, most, operation(call, key))
    return serializers.answer({"job_id": job_id, "price": paid.price, "balance": paid.balance})


@routes.add("GET", "/api/v1/users/{user_id}/credits", "read", example=examples.BALANCE)
async def get_credits(call: Here, user_id: UserId) -> TypedResponse[BalanceResponse]:
    """Get a user's balance, 0 for an unknown user. A client key needs `act_as`."""
    if call.identity.acts_alone:
        raise ProblemDetails(
            403, "forbidden", "balances of users can only be read with a key that has act_as"
        )
    balance = await call.engine.balance(user_id, call.tenant)
    return serializers.answer({"user_id": user_id, "currency": CURRENCY, "balance": balance})
