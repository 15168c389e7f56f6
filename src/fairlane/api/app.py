"""The HTTP application: its routes, its OpenAPI description, its middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from fairlane.api import docs_page
from fairlane.api.context import AppContext, open_context
from fairlane.api.http.problem_details import problem_of, respond
from fairlane.api.http.validation_errors import invalid
from fairlane.api.middleware import GuardMiddleware
from fairlane.api.routes import GROUPS
from fairlane.api.routes.status import livez, ready
from fairlane.api.routing import Routes, install, unguarded
from fairlane.api.schemas import responses, serializers
from fairlane.api.schemas.requests import BatchRequest, JobRequestBody
from fairlane.api.schemas.tasks import TaskRequest
from fairlane.api.schemas.workers import ResultRequest
from fairlane.config.settings import Settings
from fairlane.engine import Engine
from fairlane.errors import FairlaneError

TITLE = "Fairlane"
SUMMARY = "Who gets the scarce AI capacity next."
REFERENCE = "#/components/schemas/{model}"


class App:
    """An ASGI application over an engine that has been started."""

    def __init__(self, app_context: AppContext) -> None:
        self.app_context = app_context
        self.api = _api(app_context)
        hot = install(
            self.api, [*GROUPS, _pages(self.api, app_context.settings.catalog.tiers.names)]
        )
        self._guard = GuardMiddleware(self.api, app_context, hot)
        forgotten = unguarded(self.api)
        if forgotten:
            raise ValueError(f"who may use {', '.join(forgotten)}?")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)


async def create_app(engine: Engine, settings: Settings) -> App:
    return App(await open_context(engine, settings))


def _api(app_context: AppContext) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await app_context.open()
        try:
            yield
        finally:
            await app_context.close()

    api = FastAPI(
        title=TITLE,
        summary=SUMMARY,
        version=version("fairlane"),
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )

    async def readyz() -> Response:
        return await ready(app_context)

    for path, answer in (("/livez", livez), ("/readyz", readyz)):
        api.router.add_api_route(path, answer, methods=["GET", "HEAD"], include_in_schema=False)
    for kind in (FairlaneError, HTTPException, RequestValidationError, Exception):
        api.add_exception_handler(kind, _answer)
    return api


async def _answer(request: Request, error: Exception) -> Response:
    """As the guard answers what goes wrong before and beside the routes."""
    if isinstance(error, RequestValidationError):
        error = invalid(error.errors())
    app_context: AppContext = request.scope["app_context"]
    problem = problem_of(error, app_context.engine.clock.now())
    app_context.instrumentation.refused(problem.status_code, problem.code)
    return respond(problem, request.scope["path"], request.scope["request_id"])


# --- the description -----------------------------------------------------------------------------
def _pages(api: FastAPI, tiers: Sequence[str]) -> Routes:
    routes = Routes("description")

    @routes.add("GET", "/openapi.json", "any", gives=dict[str, Any])
    async def openapi() -> Response:
        """This description."""
        return serializers.answer(description(api, tiers))

    @routes.add("GET", "/docs", "any", also={200: {"content": {"text/html": {}}}})
    async def docs() -> Response:
        """This description, for people: Swagger UI."""
        return HTMLResponse(docs_page.page(api.title), headers=docs_page.HEADERS)

    types: dict[str, Any] = {kind: {} for kind in ("text/css", "text/javascript", "image/png")}

    @routes.add("GET", "/docs/{file}", "any", also={200: {"content": types}}, problems=(404,))
    async def docs_file(file: str) -> Response:
        """A file of the page above."""
        found = docs_page.static_files().get(file)
        if found is None:
            raise HTTPException(404)
        return Response(found.content, media_type=found.media_type, headers=docs_page.FILE_HEADERS)

    return routes


def description(api: FastAPI, tiers: Sequence[str]) -> dict[str, Any]:
    """OpenAPI, with what the fast routes take and the tiers there are."""
    if api.openapi_schema is None:
        found = get_openapi(
            title=api.title, version=api.version, summary=api.summary, routes=api.routes
        )
        schemas = found.setdefault("components", {}).setdefault("schemas", {})
        for model in (
            JobRequestBody,
            BatchRequest,
            TaskRequest,
            ResultRequest,
            responses.ProblemResponse,
        ):
            schemas.update(_schemas(model))
        for model_name in ("JobRequestBody", "TaskRequest", "UserRequest"):
            _name_tiers(schemas[model_name]["properties"], tiers)
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        found["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
        for path in ("/api/v1/jobs", "/api/v1/jobs:batch", "/api/v1/tasks"):
            found["paths"][path]["post"]["parameters"] = [IDEMPOTENCY]
        api.openapi_schema = found
    return api.openapi_schema


IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": r"^[A-Za-z0-9_\-:.]{1,255}$"},
    "description": "The same key and request again is answered with the first job, for 24 h.",
}


def _name_tiers(properties: dict[str, Any], tiers: Sequence[str]) -> None:
    known = {"type": "string", "enum": list(tiers)}
    optional = "anyOf" in properties["priority"]
    properties["priority"] = {"anyOf": [known, {"type": "null"}]} if optional else known


def _schemas(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=REFERENCE)
    return {**schema.pop("$defs", {}), model.__name__: schema}
