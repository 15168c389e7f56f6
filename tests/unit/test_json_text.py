"""What is JSON, and what is refused with the place where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from fairlane.errors import InvalidInput
from fairlane.json_text import json_bytes, json_text


@dataclass
class Score:
    value: float | None


ITSELF: list[Any] = []
ITSELF.append(ITSELF)

REFUSED: tuple[tuple[Any, str], ...] = (
    (float("nan"), "input is nan"),
    ({"a": [1, None, {"b c": float("inf")}]}, 'input.a[2]["b c"] is inf'),
    ((1, (2, float("-inf"))), "input[1][1] is -inf"),
    ({"best": Score(float("nan"))}, "input.best.value is nan"),
    ({"a": {1, 2}}, "input.a is of type set"),
    ({"a": {1: 2}}, "input.a has a key of type int; keys are text"),
    ([2**64], "input[0] is an integer of more than 64 bits"),
    ([b"x"], "input[0] is of type bytes; encode it as text first"),
    ("\ud800", "input is text with half a character"),
    (ITSELF, "is nested too deep, or contains itself"),
)


@pytest.mark.parametrize(("value", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_what_json_cannot_say_is_refused_with_its_place(value: Any, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        json_bytes("input", value)
    assert told in str(refused.value)
    assert str(refused.value).startswith("the input is not JSON: ")


@pytest.mark.parametrize(
    "value", [None, [None, 1.5], {"null": "NaN"}, {"a": None, "b": [0, -1e308]}, Score(None)]
)
def test_null_is_json(value: Any) -> None:
    assert b"null" in json_bytes("input", value)
    assert json_text("input", value) == json_bytes("input", value).decode()
