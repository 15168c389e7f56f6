"""The meaning of a service's response: a result, or a fault of a certain kind."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import orjson

from fairlane.engine.json_text import large_integer
from fairlane.model.attempt import Fault
from fairlane.model.endpoint import Endpoint
from fairlane.model.job import Json

UNAVAILABLE = frozenset({429, 502, 503, 504})
"""The service is sick or full; the job is not."""

UNKNOWN_END = frozenset({504})
"""A gateway stopped waiting: what stands behind it may still be at work."""

MAX_REASON_CHARACTERS = 500


class Good(NamedTuple):
    """What the step made."""

    data: Json
    metrics: Json


class Bad(NamedTuple):
    """`retry_after` (s) is what the service asked for; `over` = it has ended the call."""

    fault: Fault
    message: str
    retry_after: float = 0
    over: bool = True


Meaning = Good | Bad


def understand(service: str, endpoint: Endpoint, status: int, body: bytes) -> Meaning:
    """The retry matrix. Messages name the service as jobs know it, never where it is."""
    if status in UNAVAILABLE:
        return Bad(
            Fault.UNAVAILABLE, f"{service} answered {status}", over=status not in UNKNOWN_END
        )
    if status in endpoint.retry_on:
        return Bad(Fault.TRANSIENT, f"{service} answered {status}{_reason(body)}")
    if 200 <= status < 300:
        return _result(service, body)
    if 300 <= status < 400:
        message = f"{service} answered {status}: redirects are not followed"
        return Bad(Fault.SERVICE_ERROR, message)
    kind = Fault.INVALID_INPUT if 400 <= status < 500 else Fault.SERVICE_ERROR
    return Bad(kind, f"{service} answered {status}{_reason(body)}")


def _result(service: str, body: bytes) -> Meaning:
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
    """What the service says about it, if it says so in a way that was meant to be read."""
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
    """Seconds, from a number or a date. A date counts from the service's own clock, if it tells
    it, so that two clocks that differ do no harm."""
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
