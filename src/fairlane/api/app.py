"""The HTTP application (ASGI): the routes, the OpenAPI pages and the middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from fairlane.api import docs_page
from fairlane.api.context import AppContext, open_context
from fairlane.api.http.problem_details import problem_of, respond
from fairlane.api.http.validation_errors import invalid
from fairlane.api.middleware import GuardMiddleware
from fairlane.api.openapi import description
from fairlane.api.routes import GROUPS
from fairlane.api.routes.status import livez, ready
from fairlane.api.routing import Routes, install, unguarded
from fairlane.api.schemas import serializers
from fairlane.config.settings import Settings
from fairlane.engine import Engine
from fairlane.errors import FairlaneError

TITLE = "Fairlane"
SUMMARY = "Who gets the scarce AI capacity next."
EXAMPLE = {"openapi": "3.1.0", "info": {"title": TITLE, "version": "0.1.0"}, "paths": {}}


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
    """Turns an error of a route into problem details, as the guard does for other errors."""
    if isinstance(error, RequestValidationError):
        error = invalid(error.errors())
    app_context: AppContext = request.scope["app_context"]
    problem = problem_of(error, app_context.engine.clock.now())
    app_context.instrumentation.refused(problem.status_code, problem.code)
    return respond(problem, request.scope["path"], request.scope["request_id"])


# --- the description -----------------------------------------------------------------------------
def _pages(api: FastAPI, tiers: Sequence[str]) -> Routes:
    routes = Routes("description")

    @routes.add("GET", "/openapi.json", "any", example=EXAMPLE)
    async def openapi() -> serializers.TypedResponse[dict[str, Any]]:
        """Return this OpenAPI description."""
        return serializers.answer(description(api, tiers))

    @routes.add_file("/docs", "any", "text/html")
    async def docs() -> Response:
        """Return this description as a page with Swagger UI."""
        return HTMLResponse(docs_page.page(api.title), headers=docs_page.HEADERS)

    types = ("text/css", "text/javascript", "image/png", "text/html")

    @routes.add_file("/docs/{file}", "any", *types, problems=(404,))
    async def docs_file(file: str) -> Response:
        """Return a static file of Swagger UI, or `checks`: the page of the doctor's checks."""
        found = docs_page.static_files().get(file)
        if found is None:
            raise HTTPException(404)
        headers = {**docs_page.FILE_HEADERS, **docs_page.HEADERS}
        return Response(found.content, media_type=found.media_type, headers=headers)

    return routes
