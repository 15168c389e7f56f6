"""Problem details (RFC 9457): error responses with a code for programs, without internals."""

from __future__ import annotations

import random
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from fairlane.api.schemas.states import task_status_or_none
from fairlane.api.schemas.timestamps import iso
from fairlane.errors import (
    BadRequest,
    Conflict,
    Expired,
    FairlaneError,
    InsufficientCredits,
    NotFound,
    NotReady,
    NotYours,
    Refused,
    SetupError,
    StaleLease,
    TooDear,
    TookTooLong,
    is_store_error,
)
from fairlane.responses import ProblemResponse

MEDIA_TYPE = "application/problem+json"
DEFAULT_RETRY_AFTER_SECONDS = 5
"""The `Retry-After` when the time at which the limit frees is unknown."""

MAX_RETRY_AFTER_SECONDS = 3_600
ESTIMATED = ("queue_full", "too_many_pending")
"""Codes whose `frees_at` is an estimate."""

ALWAYS = b"x-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n"
"""Headers of every response."""


class ProblemDetails(HTTPException):
    """An error response. `more` holds extension members (RFC 9457, 3.2)."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code, self.more = code, dict(more or {})


def problem_body(problem: ProblemDetails, path: str, request_id: str) -> dict[str, object]:
    body: ProblemResponse = {
        "type": f"urn:fairlane:problem:{problem.code}",
        "title": HTTPStatus(problem.status_code).phrase,
        "status": problem.status_code,
        "detail": problem.detail,
        "instance": path,
        "code": problem.code,
        "request_id": request_id,
    }
    return {**body, **problem.more}


def respond(problem: ProblemDetails, path: str, request_id: str) -> Response:
    return Response(
        orjson.dumps(problem_body(problem, path, request_id)),
        status_code=problem.status_code,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


def raw(problem: ProblemDetails, path: str, request_id: str, *, close: bool = False) -> bytes:
    """Returns the response as the bytes of an HTTP/1.1 message."""
    answer = respond(problem, path, request_id)
    headers = [b"%s: %s\r\n" % pair for pair in answer.raw_headers if pair[0] != b"connection"]
    own = b"x-request-id: %s\r\n" % request_id.encode()
    end = b"connection: close\r\n\r\n" if close else b"\r\n"
    first = STATUS_LINE[problem.status_code]
    return b"".join([first, *headers, own, ALWAYS, end, bytes(answer.body)])


def problem_of(error: Exception, now: int = 0) -> ProblemDetails:
    """Maps an error to the problem details that the caller may see."""
    match error:
        case ProblemDetails():
            return error
        case HTTPException(status_code=status):
            code = HTTPStatus(status).phrase.lower().replace(" ", "_")
            return ProblemDetails(status, code, error.detail, headers=error.headers)
        case FairlaneError():
            return _known(error, now)
        case _ if is_store_error(error):
            return away()
        case _:
            return ProblemDetails(500, "internal", "something went wrong here; it has been noted")


def _where(error: Conflict) -> Mapping[str, Any]:
    """Returns the state of the job. A stale lease belongs to a worker, which uses task states."""
    if isinstance(error, StaleLease):
        return {"current_state": task_status_or_none(error.state)}
    return {} if error.state is None else {"state": error.state}


def _known(error: FairlaneError, now: int) -> ProblemDetails:
    more: Mapping[str, Any]
    match error:
        case Refused(code="duration_too_long"):
            status, more = 422, _limit_members(error)
        case Refused():
            return _refused(error, now)
        case SetupError():
            return away()
        case BadRequest():
            status, more = 422, ({"price": error.price} if isinstance(error, TooDear) else {})
        case Conflict():
            status, more = 409, _where(error)
        case NotFound() | NotYours():
            status, more = (404 if isinstance(error, NotFound) else 403), {}
        case Expired():
            status, more = 410, {"final_status": error.status}
        case InsufficientCredits():
            status, more = 402, {"price": error.price, "balance": error.balance}
        case NotReady() | TookTooLong():
            status, more = 503, {}
        case _:
            status, more = 400, {}
    headers = {"Retry-After": "1"} if status == 503 else None
    return ProblemDetails(status, error.code, str(error), headers=headers, more=more)


def _refused(error: Refused, now: int) -> ProblemDetails:
    """Returns 429 with a `Retry-After`. Jitter spreads the retries. If the time is known exactly,
    the jitter only makes it later."""
    wait = (
        DEFAULT_RETRY_AFTER_SECONDS
        if error.frees_at is None
        else (error.frees_at - now) / 1_000_000
    )
    is_guess = error.frees_at is None or error.code in ESTIMATED
    wait = max(
        1, min(MAX_RETRY_AFTER_SECONDS, round(wait * random.uniform(0.8 if is_guess else 1, 1.2)))
    )
    headers = {"Retry-After": str(wait)}
    return ProblemDetails(429, error.code, str(error), headers=headers, more=_limit_members(error))


def _limit_members(error: Refused) -> dict[str, Any]:
    """Returns which limit refused, what is left of it, and when it frees. Unknown members are left
    out."""
    more: dict[str, Any] = {"limit": error.limit, "left": error.left}
    if error.setting is not None:
        more["setting"] = error.setting
    if error.tier is not None:
        more["tier"] = error.tier
    if error.frees_at is not None:
        more["frees_at"] = iso(error.frees_at)
    return more


def away() -> ProblemDetails:
    return ProblemDetails(
        503,
        "storage_unavailable",
        "the queue's storage cannot be reached; try again in a moment",
        headers={"Retry-After": "1"},
    )


def unauthorized(detail: str) -> ProblemDetails:
    headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
    return ProblemDetails(401, "unauthorized", detail, headers=headers)


def no_job(job: str) -> ProblemDetails:
    """Returns the same 404 for a job that does not exist and for a job of another owner."""
    return ProblemDetails(404, NotFound.code, f'no job "{job}"')
