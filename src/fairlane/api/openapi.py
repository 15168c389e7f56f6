"""The OpenAPI description of the API, for `/openapi.json` and Swagger UI: every request, every
response and every problem with an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from fairlane.api.http.problem_details import MEDIA_TYPE
from fairlane.api.routing import PROBLEMS, GuardedRoute
from fairlane.api.schemas import examples
from fairlane.api.schemas.generation_requests import GenerationRequest
from fairlane.api.schemas.inference_requests import InferenceRequest
from fairlane.api.schemas.requests import IDEMPOTENCY_KEY, BatchRequest, JobRequestBody
from fairlane.api.schemas.task_requests import TaskRequest
from fairlane.api.schemas.worker_requests import ResultRequest
from fairlane.responses import ProblemResponse

HOT_BODIES = (
    JobRequestBody,
    BatchRequest,
    TaskRequest,
    GenerationRequest,
    InferenceRequest,
    ResultRequest,
)
"""Request bodies that the framework does not read, so that it does not describe them."""

SCHEMA_REFERENCE = "#/components/schemas/{model}"
IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": IDEMPOTENCY_KEY},
    "description": "The same key and request again is answered with the first job, for 24 h.",
}


def description(api: FastAPI, tiers: Sequence[str]) -> dict[str, Any]:
    """Returns the OpenAPI description, with the bodies of the hot routes and the tiers."""
    if api.openapi_schema is None:
        api.openapi_schema = _described(api, tiers)
    return api.openapi_schema


def _described(api: FastAPI, tiers: Sequence[str]) -> dict[str, Any]:
    found = get_openapi(
        title=api.title, version=api.version, summary=api.summary, routes=api.routes
    )
    components = found.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for model in (*HOT_BODIES, ProblemResponse):
        schemas.update(_schemas(model))
    for model_name in ("JobRequestBody", "TaskRequest", "GenerationRequest", "UserRequest"):
        _name_tiers(schemas[model_name]["properties"], tiers)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"key": []}]
    components["responses"] = {f"Problem{status}": _problem(status) for status in PROBLEMS}
    for route in api.routes:
        if isinstance(route, GuardedRoute) and route.include_in_schema:
            for method in route.methods or ():
                operation = found["paths"][route.path][method.lower()]
                _complete(operation["responses"], route.examples)
                if route.access == "public":
                    operation["security"] = []
    for path in ("/api/v1/jobs", "/api/v1/jobs:batch", "/api/v1/tasks", "/generate"):
        found["paths"][path]["post"]["parameters"] = [IDEMPOTENCY]
    return found


def _complete(responses: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Adds the examples of the responses. The framework would drop their null values."""
    for status, response in responses.items():
        if int(status) in PROBLEMS:
            responses[status] = {"$ref": f"#/components/responses/Problem{status}"}
            continue
        for media_type, content in response.get("content", {}).items():
            if media_type in given:
                content["example"] = given[media_type]


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": SCHEMA_REFERENCE.format(model=ProblemResponse.__name__)}
    content = {MEDIA_TYPE: {"schema": schema, "example": examples.PROBLEMS[status]}}
    return {"description": PROBLEMS[status], "content": content}


def _name_tiers(properties: dict[str, Any], tiers: Sequence[str]) -> None:
    known = {"type": "string", "enum": list(tiers)}
    optional = "anyOf" in properties["priority"]
    properties["priority"] = {"anyOf": [known, {"type": "null"}]} if optional else known


def _schemas(model: type[Any]) -> dict[str, Any]:
    schema = TypeAdapter(model).json_schema(ref_template=SCHEMA_REFERENCE)
    return {**schema.pop("$defs", {}), model.__name__: schema}
