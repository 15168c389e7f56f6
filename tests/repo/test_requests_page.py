"""Every field of every request is documented with its default, and no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fairlane.api import app, openapi
from fairlane.api.schemas.requests import RequestModel, UncheckedBatchRequest
from fairlane.compose import embedded
from fairlane.config.settings import Settings
from fairlane.presets import tasks
from tests.repo.tables import DOCS, table

PAGE = DOCS / "reference" / "requests.md"


def requests(kind: type[RequestModel] = RequestModel) -> Iterator[type[RequestModel]]:
    for each in kind.__subclasses__():
        if each is not UncheckedBatchRequest:  # a batch before its jobs are looked at
            yield each
        yield from requests(each)


@pytest.mark.parametrize("kind", list(requests()), ids=lambda kind: kind.__name__)
def test_every_field_of_a_request_is_documented_with_its_default(kind: type[RequestModel]) -> None:
    rows = table(PAGE, kind.__name__)
    assert {row["field"]: row["default"] for row in rows} == {
        name: default(field) for name, field in kind.model_fields.items()
    }
    assert all(row["meaning"] for row in rows)


async def test_every_query_parameter_is_documented_with_its_default(tmp_path: Path) -> None:
    async with await embedded(tasks(), tmp_path / "ledger.db") as engine:
        found = await app.create_app(engine, Settings(tasks()))
        paths = openapi.description(found.api, ["high"])["paths"]
    real = {
        (f"{method.upper()} {path}", each["name"], json.dumps(each["schema"].get("default")))
        for path, methods in paths.items()
        for method, operation in methods.items()
        for each in operation.get("parameters", ())
        if each["in"] == "query"
    }
    rows = table(PAGE, "Query and headers")
    assert {(row["route"], row["parameter"], row["default"]) for row in rows} == real


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_defaults=True)
    return json.dumps(value)
