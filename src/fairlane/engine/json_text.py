"""JSON at the door: what comes in is stored as text, or refused with the reason."""

from __future__ import annotations

import json
import re

import orjson

from fairlane.errors import InvalidInput
from fairlane.model.job import Json

NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped U+0000, and not an escaped backslash before the letters."""

LONG_NUMBER = re.compile(rb"[0-9]{19}")
SMALLEST_INTEGER, LARGEST_INTEGER = -(2**63), 2**64 - 1
MAX_DIGITS, SHOWN_DIGITS = 20, 40


def large_integer(body: bytes) -> str | None:
    """An integer in this JSON that has more than 64 bits, if there is one: read as a number it
    would be another one."""
    found: list[str] = []

    def look(text: str) -> None:
        fits = len(text.removeprefix("-")) <= MAX_DIGITS
        if not found and not (fits and SMALLEST_INTEGER <= int(text) <= LARGEST_INTEGER):
            found.append(text if len(text) <= SHOWN_DIGITS else f"{text[:SHOWN_DIGITS]}…")

    if LONG_NUMBER.search(body):
        json.loads(body, parse_int=look)
    return found[0] if found else None


def json_text(what: str, value: Json, most: int | None = None) -> str:
    """The value as JSON text. `what` names it in the error."""
    try:
        text = orjson.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the {what} is not JSON: {error}") from None
    if most is not None and len(text) > most:
        raise InvalidInput(f"the {what} has {len(text)} bytes, at most {most} are allowed")
    if b"u0000" in text and NUL.search(text):
        raise InvalidInput(f"the {what} contains U+0000")
    return text.decode()
