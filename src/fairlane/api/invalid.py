"""What is wrong with the values of a request, field by field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.api.problems import Problem

MOST_NAMED = 20


def invalid(errors: Sequence[Any]) -> Problem:
    named = [
        {
            "field": ".".join(str(part) for part in error["loc"] if part != "body"),
            "message": error["msg"].removeprefix("Value error, "),
        }
        for error in errors[:MOST_NAMED]
    ]
    first = named[0]
    text = f"{first['field']}: {first['message']}" if first["field"] else first["message"]
    return Problem(422, "invalid_input", text, more={"errors": named})
