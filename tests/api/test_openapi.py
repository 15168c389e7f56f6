"""The OpenAPI description: complete, with true examples."""

from __future__ import annotations

import re

import orjson
import pytest

from fairlane.api.routing import PROBLEMS
from tests.api.described import Content, Description

FILES = {"text/html", "text/css", "text/javascript", "image/png"}
"""Swagger UI itself."""

DESCRIPTION = Description()


def name(content: Content) -> str:
    return f"{content.whose} {content.media_type}"


def test_every_reference_leads_somewhere() -> None:
    text = orjson.dumps(DESCRIPTION.document).decode()
    references = set(re.findall(r'"#/components/(\w+)/([^"]+)"', text))
    known = {
        (kind, each) for kind, found in DESCRIPTION.document["components"].items() for each in found
    }
    assert references
    assert references <= known


@pytest.mark.parametrize("request_body", [*DESCRIPTION.requests()], ids=name)
def test_every_request_has_an_example_that_fits_its_schema(request_body: Content) -> None:
    schema = DESCRIPTION.resolved(request_body.schema)
    assert schema["examples"]
    for example in schema["examples"]:
        assert DESCRIPTION.errors(request_body.schema, example) == []


@pytest.mark.parametrize(
    "response",
    [each for each in DESCRIPTION.responses() if each.media_type not in FILES],
    ids=name,
)
def test_every_response_has_an_example_that_fits_its_schema(response: Content) -> None:
    example = as_sent(response.described["example"])
    assert response.schema
    assert DESCRIPTION.errors(response.schema, example) == []


@pytest.mark.parametrize("problem", [*DESCRIPTION.problems()], ids=name)
def test_every_problem_has_an_example_that_fits_its_schema(problem: Content) -> None:
    example = as_sent(problem.described["example"])
    assert problem.whose == f"Problem{example['status']}"
    assert DESCRIPTION.errors(problem.schema, example) == []


def test_every_problem_is_described_once() -> None:
    assert {each.whose for each in DESCRIPTION.problems()} == {
        f"Problem{each}" for each in PROBLEMS
    }
    for operation, described in DESCRIPTION.operations():
        for status, response in described["responses"].items():
            if not status.startswith("2"):
                reference = {"$ref": f"#/components/responses/Problem{status}"}
                assert response == reference, operation


def test_an_example_with_a_missing_or_an_unknown_field_is_noticed() -> None:
    for response in DESCRIPTION.responses():
        if response.whose == "GET /api/v1/jobs/{job_id} 200":
            example = as_sent(response.described["example"])
            assert DESCRIPTION.errors(response.schema, {**example, "unknown": 1})
            del example["tags"]
            assert DESCRIPTION.errors(response.schema, example)


def as_sent(value: object) -> dict[str, object]:
    """As JSON has it: states are text."""
    found: dict[str, object] = orjson.loads(orjson.dumps(value))
    return found
