"""The OpenAPI description as a judge: does a body fit the schema of its route?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import httpx2
import jsonschema_rs
from fastapi import FastAPI

from fairlane.api.openapi import description
from fairlane.api.routes import GROUPS
from fairlane.api.routing import install

JSON = "application/json"


class Content(NamedTuple):
    """The description of one body: whose it is, its media type, its schema, its example."""

    whose: str
    media_type: str
    schema: dict[str, Any]
    described: dict[str, Any]


class Description:
    """What the routes say of themselves. Responses have no members but those described."""

    def __init__(self) -> None:
        api = FastAPI(title="Fairlane", openapi_url=None)
        install(api, GROUPS)
        self.document = description(api, ["high", "medium", "low"])
        self._validators: dict[str, jsonschema_rs.Draft202012Validator] = {}

    @property
    def schemas(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document["components"]["schemas"]
        return found

    def operations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                yield f"{method.upper()} {path}", operation

    def requests(self) -> Iterator[Content]:
        for name, operation in self.operations():
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                yield Content(name, kind, content.get("schema", {}), content)

    def responses(self) -> Iterator[Content]:
        """The successful ones."""
        for name, operation in self.operations():
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    for kind, content in response["content"].items():
                        yield Content(f"{name} {status}", kind, content.get("schema", {}), content)

    def problems(self) -> Iterator[Content]:
        for name, response in self.document["components"]["responses"].items():
            for kind, content in response["content"].items():
                yield Content(name, kind, content["schema"], content)

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema itself, where it is a reference; the first one, where there are several."""
        first: dict[str, Any] = schema.get("anyOf", [schema])[0]
        return self.schemas[first["$ref"].rpartition("/")[2]] if "$ref" in first else first

    def errors(self, schema: dict[str, Any], body: Any) -> list[str]:
        """What is wrong with a body."""
        known = self._validators.get(str(schema))
        if known is None:
            whole = {**schema, "components": {"schemas": self._strict}}
            known = self._validators[str(schema)] = jsonschema_rs.Draft202012Validator(whole)
        return [f"{each.instance_path}: {each.message}" for each in known.iter_errors(body)]

    @cached_property
    def _strict(self) -> dict[str, Any]:
        return {
            name: {"additionalProperties": False, **schema} if "properties" in schema else schema
            for name, schema in self.schemas.items()
        }

    async def check(self, response: httpx2.Response) -> None:
        """For a client: fails where a JSON answer is not as its route describes it."""
        if response.status_code >= 300 or response.headers.get("content-type") != JSON:
            return
        request = response.request
        for path, schemas in self._answers:
            schema = schemas.get((request.method, str(response.status_code)))
            if schema is not None and path.fullmatch(request.url.path):
                await response.aread()
                assert not self.errors(schema, response.json()), (request.url, response.text)
                return

    @cached_property
    def _answers(self) -> list[tuple[re.Pattern[str], dict[tuple[str, str], dict[str, Any]]]]:
        found: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        for whose, media_type, schema, _ in self.responses():
            method, path, status = whose.split()
            if media_type == JSON:
                found.setdefault(path, {})[method, status] = schema
        fixed_first = sorted(found, key=lambda path: path.count("{"))
        return [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), found[path]) for path in fixed_first]
