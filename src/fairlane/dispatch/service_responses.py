"""The meaning of a service's response: a result, or a fault of a certain kind."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import orjson

from fairlane.json_text import large_integer
from fairlane.model.attempt import Fault
from fairlane.model.endpoint import Endpoint
from fairlane.model.file_result import FileResult, is_file
from fairlane.model.job import Json

UNAVAILABLE = frozenset({429, 502, 503, 504})
"""HTTP statuses that count as the service's fault, not the job's."""

UNKNOWN_END = frozenset({504})
"""HTTP statuses after which the call may still run: a gateway stopped waiting for it."""

MAX_REASON_CHARACTERS = 500


class Good(NamedTuple):
    """The output of the step. `over`: the service has ended the call."""

    data: Json
    metrics: Json
    over: bool = True


class Bad(NamedTuple):
    """`retry_after` (s) is the delay that the service asked for. `over` as in `Good`."""

    fault: Fault
    message: str
    retry_after: float = 0
    over: bool = True


Meaning = Good | Bad


def understand(
    service: str, endpoint: Endpoint, status: int, body: bytes, media_type: str = ""
) -> Meaning:
    """The retry matrix. Messages name the service, never its URL. A body whose media type is that
    of a file is the result as it is; any other is read as JSON."""
    if status in UNAVAILABLE:
        return Bad(
            Fault.UNAVAILABLE, f"{service} answered {status}", over=status not in UNKNOWN_END
        )
    if status in endpoint.retry_on:
        return Bad(Fault.TRANSIENT, f"{service} answered {status}{_reason(body)}")
    if 200 <= status < 300:
        if is_file(media_type):
            return Good(FileResult(body, media_type).json(), None)
        return result(service, body)
    if 300 <= status < 400:
        message = f"{service} answered {status}: redirects are not followed"
        return Bad(Fault.SERVICE_ERROR, message)
    kind = Fault.INVALID_INPUT if 400 <= status < 500 else Fault.SERVICE_ERROR
    return Bad(kind, f"{service} answered {status}{_reason(body)}")


def result(service: str, body: bytes) -> Meaning:
    """The result in the body of a 2xx response, or in a line of a streamed one."""
    try:
        answer: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        message = f"{service} answered with something that is not JSON (nor are NaN and Infinity)"
        return Bad(Fault.SERVICE_ERROR, f"{message}: {error}")
    large = large_integer(body)
    if large is not None:
        message = f"{service} answered with the integer {large}, which has more than 64 bits"
        return Bad(Fault.SERVICE_ERROR, f"{message}; it can send it as text")
    if not isinstance(answer, dict) or "data" not in answer:
        message = f'{service} answered without "data"; an answer is {{"data": …, "metrics": …}}'
        return Bad(Fault.SERVICE_ERROR, message)
    return Good(answer["data"], answer.get("metrics"))


def _reason(body: bytes) -> str:
    """The service's own error message, if the body has one in a known field."""
    try:
        said: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    for name in ("detail", "message", "error"):
        text = said.get(name) if isinstance(said, dict) else None
        if isinstance(text, str) and text:
            return f": {text[:MAX_REASON_CHARACTERS]}"
    return ""


def retry_after(headers: Mapping[str, str], now: int) -> float:
    """The `Retry-After` header in seconds, from a number or a date. A date is compared with the
    service's own `Date` header if there is one, so clock differences do no harm."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    until = _seconds_of(value)
    if until is None:
        return 0
    said = _seconds_of(headers.get("Date", ""))
    return max(0.0, until - (said if said is not None else now / 1_000_000))


def _seconds_of(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
