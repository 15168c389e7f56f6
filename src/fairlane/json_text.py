"""JSON input validation: a value is stored as JSON text, or refused with the reason."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import orjson

from fairlane.errors import InvalidInput
from fairlane.model.job import Json

NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""Matches an escaped U+0000, but not an escaped backslash that is followed by `u0000`."""

PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,50}")
MAX_DEPTH = 250
"""Levels of nesting that the JSON encoder accepts."""

LONG_NUMBER = re.compile(rb"[0-9]{19}")
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
MAX_DIGITS, SHOWN_DIGITS = 20, 40


def large_integer(body: bytes) -> str | None:
    """The first integer in this JSON that has more than 64 bits, if any: parsing it as a number
    would change its value."""
    found: list[str] = []

    def look(text: str) -> None:
        fits = len(text.removeprefix("-")) <= MAX_DIGITS
        if not found and not (fits and MIN_INTEGER <= int(text) <= MAX_INTEGER):
            found.append(text if len(text) <= SHOWN_DIGITS else f"{text[:SHOWN_DIGITS]}…")

    if LONG_NUMBER.search(body):
        json.loads(body, parse_int=look)
    return found[0] if found else None


def json_text(what: str, value: Json, most: int | None = None) -> str:
    """The value as JSON text of at most `most` bytes. `what` names the value in the error."""
    text = json_bytes(what, value)
    if most is not None and len(text) > most:
        raise InvalidInput(f"the {what} has {len(text)} bytes, at most {most} are allowed")
    if b"u0000" in text and NUL.search(text):
        raise InvalidInput(f"the {what} contains U+0000")
    return text.decode()


def json_bytes(what: str, value: Json) -> bytes:
    """The value as JSON. Raises InvalidInput with the path of a value that JSON cannot express. NaN
    and infinite numbers are refused, too: the encoder would write them as null."""
    try:
        text = orjson.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        found = next(_offenders(what, value, 0), str(error))
        raise InvalidInput(f"the {what} is not JSON: {found}") from None
    if b"null" in text and not _is_finite(value):
        found = next(_offenders(what, value, 0), "a number is not finite")
        raise InvalidInput(f"the {what} is not JSON: {found}")
    return text


def _is_finite(value: Any) -> bool:
    """Whether every number in a value that was written as JSON is finite."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)
        elif isinstance(each, float):
            if not math.isfinite(each):
                return False
        elif is_dataclass(each) and not isinstance(each, type):
            left.extend(getattr(each, field.name) for field in fields(each))
    return True


def _offenders(path: str, value: Any, depth: int) -> Iterator[str]:
    """The path of every value that JSON cannot express, with the reason."""
    if depth > MAX_DEPTH:
        yield f"{path[:100]}… is nested too deep, or contains itself"
    elif isinstance(value, dict):
        for key, child in value.items():
            if isinstance(key, str):
                yield from _offenders(_below(path, key), child, depth + 1)
            else:
                yield f"{path} has a key of type {_type(key)}; keys are text"
    elif isinstance(value, list | tuple):
        for i, child in enumerate(value):
            yield from _offenders(f"{path}[{i}]", child, depth + 1)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _offenders(f"{path}.{field.name}", getattr(value, field.name), depth + 1)
    else:
        reason = _reason(value)
        if reason:
            yield f"{path} is {reason}"


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if PLAIN_KEY.fullmatch(key) else f'{path}["{key[:50]}"]'


def _reason(value: Any) -> str:
    """Why a scalar value is not JSON; empty if it is."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{float(value)}, which JSON has no number for; use null or text"
    try:
        orjson.dumps(value)
    except (TypeError, ValueError, RecursionError):
        pass
    else:
        return ""
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        return "an integer of more than 64 bits; write it as text"
    if isinstance(value, str):
        return "text with half a character (a lone surrogate)"
    hint = ""
    if hasattr(value, "tolist"):
        hint = "; call its tolist() first"
    elif isinstance(value, bytes | bytearray):
        hint = "; encode it as text first, for example with base64"
    return f"of type {_type(value)}{hint}"


def _type(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
