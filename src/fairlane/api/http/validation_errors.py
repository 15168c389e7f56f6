"""Validation errors of a request as problem details, with one entry per field."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from fairlane.api.http.problem_details import ProblemDetails

MAX_LISTED_ERRORS = 20
MAX_SUGGESTIONS = 3
"""Unknown fields of one request that get a suggestion. A suggestion takes a third of a
millisecond."""

OBJECT = "a JSON object is needed"
MESSAGES = {"missing": "is needed", "model_type": OBJECT, "model_attributes_type": OBJECT}


def invalid(errors: Sequence[Any], known: Iterable[str] = ()) -> ProblemDetails:
    """Returns a 422. `known` are the field names that may be suggested for an unknown field."""
    named = [
        {
            "field": ".".join(str(part) for part in error["loc"] if part != "body"),
            "message": _message(error, known if n < MAX_SUGGESTIONS else ()),
        }
        for n, error in enumerate(errors[:MAX_LISTED_ERRORS])
    ]
    first = named[0]
    text = f"{first['field']}: {first['message']}" if first["field"] else first["message"]
    return ProblemDetails(422, "invalid_input", text, more={"errors": named})


def _message(error: Any, known: Iterable[str]) -> str:
    if error["type"] != "extra_forbidden":
        return MESSAGES.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
    close = difflib.get_close_matches(str(error["loc"][-1]), list(known), n=1)
    return "no such field" + (f'; did you mean "{close[0]}"?' if close else "")
