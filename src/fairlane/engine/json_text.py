"""JSON at the door: what comes in is stored as text, or refused with the reason."""

from __future__ import annotations

import re

import orjson

from fairlane.errors import InvalidInput
from fairlane.model.job import Json

NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped U+0000, and not an escaped backslash before the letters."""


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
