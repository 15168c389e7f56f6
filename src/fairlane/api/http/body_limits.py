"""Request body bounds: bytes, seconds, nesting depth and number of JSON values. Only JSON is
accepted."""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import Iterable
from typing import Any, NoReturn

import orjson
from starlette.requests import Request
from starlette.types import Receive, Scope

from fairlane.api.http.problem_details import ProblemDetails
from fairlane.json_text import large_integer

MAX_JSON_NODES, DEEPEST = 10_000, 32
BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""UTF-32 needs no entry: its text begins like UTF-16, or with a zero byte."""


class Bounds:
    """The limits of one request body: its bytes, and the seconds it may take to arrive."""

    __slots__ = ("bytes", "seconds")

    def __init__(self, most_bytes: int, most_seconds: float) -> None:
        self.bytes, self.seconds = most_bytes, most_seconds


async def read(scope: Scope, receive: Receive, bounds: Bounds) -> bytes:
    """Returns the whole body, or raises the problem. Most bodies arrive in one message."""
    message = await _first(receive, bounds)
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        body = await _rest(receive, body, bounds)
    if len(body) > bounds.bytes:
        raise too_large(bounds.bytes)
    if body:
        _demand_json(scope)
    return body


async def _first(receive: Receive, bounds: Bounds) -> Any:
    try:
        async with asyncio.timeout(bounds.seconds):
            return _alive(await receive())
    except TimeoutError:
        raise too_slow(bounds.seconds) from None


async def _rest(receive: Receive, body: bytes, bounds: Bounds) -> bytes:
    parts, size = [body], len(body)
    try:
        async with asyncio.timeout(bounds.seconds):
            more = True
            while more and size <= bounds.bytes:
                message = _alive(await receive())
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                more = message.get("more_body", False)
    except TimeoutError:
        raise too_slow(bounds.seconds) from None
    return b"".join(parts)


def _alive(message: Any) -> Any:
    if message["type"] == "http.disconnect":
        raise ProblemDetails(400, "disconnected", "the request ended before it was complete")
    return message


def _demand_json(scope: Scope) -> None:
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            if kind == b"application/json" or (
                kind.startswith(b"application/") and kind.endswith(b"+json")
            ):
                return
    raise ProblemDetails(415, "unsupported_media_type", "send application/json")


# --- JSON ----------------------------------------------------------------------------------------
def parse(body: bytes, nodes: int = MAX_JSON_NODES) -> Any:
    """Returns the JSON value. Refuses NaN, lone surrogates, deep nesting and integers of more than
    64 bits, which Python's parser accepts."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        _explain(body, error)
    brackets = body.count(b"[") + body.count(b"{")
    if brackets > DEEPEST or brackets + body.count(b",") + body.count(b":") > nodes:
        _measure(value, nodes)
    _check_integers(body)
    return value


def _check_integers(body: bytes) -> None:
    large = large_integer(body)
    if large is not None:
        message = f"the integer {large} has more than 64 bits and would lose digits"
        raise ProblemDetails(422, "invalid_input", f"{message}; send it as text, in quotes")


def _explain(body: bytes, error: Exception) -> NoReturn:
    """Raises the problem: 400 if the JSON is malformed, 422 if only Python's parser accepts it."""
    if body.startswith(BYTE_ORDER_MARKS) or b"\0" in body[:4]:
        detail = "send the body as UTF-8 without a byte order mark"
        raise ProblemDetails(400, "malformed_json", detail) from None
    try:
        json.loads(body.decode(), parse_int=str)
        _check_integers(body)
    except UnicodeDecodeError as wrong:
        detail = f"send the body as UTF-8; its byte {wrong.start} is something else"
        raise ProblemDetails(400, "malformed_json", detail) from None
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        raise ProblemDetails(400, "malformed_json", f"the body is not JSON: {error}") from None
    if body.count(b"[") + body.count(b"{") > 1000:
        raise too_deep() from None
    raise ProblemDetails(
        422, "invalid_input", "NaN, Infinity and halves of characters are not JSON"
    ) from None


def _measure(value: Any, most: int) -> None:
    count = 1
    level = [value]
    for _ in range(DEEPEST):
        inside = [child for each in level for child in _children(each)]
        count += len(inside)
        if count > most:
            raise ProblemDetails(
                422, "too_many_values", f"a request has at most {most} JSON values"
            )
        level = [child for child in inside if isinstance(child, dict | list)]
        if not level:
            return
    raise too_deep()


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def too_deep() -> ProblemDetails:
    return ProblemDetails(422, "too_deep", f"JSON is nested at most {DEEPEST} levels deep")


def too_large(most: int) -> ProblemDetails:
    headers = {"Connection": "close"}
    return ProblemDetails(413, "too_large", f"a request has at most {most} bytes", headers=headers)


def too_slow(most: float) -> ProblemDetails:
    headers = {"Connection": "close"}
    return ProblemDetails(408, "too_slow", f"a request arrives within {most:g} s", headers=headers)


class CheckedRequest(Request):
    """A request whose body is always read with the checks above, also by the framework."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await read(self.scope, self.receive, self.scope["bounds"])
        return self._body

    async def json(self) -> Any:
        return parse(await self.body())
