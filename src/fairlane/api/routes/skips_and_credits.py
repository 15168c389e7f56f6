"""Routes of paid skips and credits: the quote, the payment, the balance, the statement."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import Body, Header, Path, Query
from starlette.responses import PlainTextResponse

from fairlane.api.auth.ownership import checked
from fairlane.api.context import Here, RequestContext
from fairlane.api.csv_page import CSV, csv_page
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.pagination import cursor, read_cursor
from fairlane.api.routes.jobs import Cursor, IdempotencyKey, JobId, Limit, operation
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.requests import SkipRequestBody, Time, User
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.timestamps import seconds
from fairlane.errors import WrongState
from fairlane.ledger.statement import MAX_TIME
from fairlane.model.state import Move, State
from fairlane.responses import (
    BalanceResponse,
    QuoteResponse,
    SecondsSavedResponse,
    SkipResponse,
    StatementEntryResponse,
    StatementResponse,
)

routes = Routes("credits")

UserId = Annotated[User, Path(examples=["ada"])]
STATEMENT_COLUMNS = tuple(StatementEntryResponse.__annotations__)


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
            "currency": call.engine.catalog.credits.currency,
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
    _check_act_as(call)
    balance = await call.engine.balance(user_id, call.tenant)
    currency = call.engine.catalog.credits.currency
    return serializers.answer({"user_id": user_id, "currency": currency, "balance": balance})


@routes.add(
    "GET",
    "/api/v1/users/{user_id}/statement",
    "read",
    example=examples.STATEMENT,
    texts={CSV: examples.STATEMENT_CSV},
)
async def get_statement(
    call: Here,
    user_id: UserId,
    since: Annotated[Time | None, Query(description="Only entries from this time on.")] = None,
    until: Annotated[Time | None, Query(description="Only entries before this time.")] = None,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
    limit: Limit = 50,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> TypedResponse[StatementResponse] | PlainTextResponse:
    """Get the payments, refunds, grants and withdrawals of a user, newest first, as JSON or with
    `Accept: text/csv`. Every entry is on exactly one page. A client key needs `act_as`."""
    _check_act_as(call)
    listing = orjson.dumps(["statement", call.tenant, user_id, since, until]).decode()
    after = read_cursor(call.app_context.signer, listing, cursor_)
    end = MAX_TIME if until is None else until
    before = end if after is None else int(after)
    found = await call.engine.statement(
        user_id, call.tenant, since=since or 0, before=before, limit=limit + 1
    )
    shown = found.entries[:limit]
    last = str(shown[-1].at) if len(found.entries) > limit else None
    following = cursor(call.app_context.signer, listing, last)
    entries = [serializers.statement_entry(each) for each in shown]
    if CSV in accept:
        return csv_page(STATEMENT_COLUMNS, entries, following)
    return serializers.answer(
        {
            "user_id": user_id,
            "currency": call.engine.catalog.credits.currency,
            "balance": found.balance,
            "entries": entries,
            "next": following,
        }
    )


def _check_act_as(call: RequestContext) -> None:
    if call.identity.acts_alone:
        raise ProblemDetails(
            403, "forbidden", "credits of users can only be read with a key that has act_as"
        )
