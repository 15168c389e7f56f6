"""Session routes: a browser signs in with an API key and gets a session cookie."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.responses import PlainTextResponse

from fairlane.api.auth.roles import DEVELOPER, Identity
from fairlane.api.auth.sessions import (
    CSRF_COOKIE,
    SESSION_COOKIE,
    SESSION_SECONDS,
    Session,
    set_cookie,
)
from fairlane.api.context import AppContext
from fairlane.api.routing import Routes
from fairlane.api.schemas import serializers
from fairlane.api.schemas.dashboard import SESSION, SessionResponse, SignInRequest
from fairlane.api.schemas.serializers import TypedResponse

if TYPE_CHECKING:  # the middleware imports the routes' package
    from fairlane.api.auth.authentication import Authentication

routes = Routes("sessions")


@routes.add("POST", "/session", "public", example=None, status=204)
async def sign_in(request: Request, body: SignInRequest) -> PlainTextResponse:
    """Sign in with an API key. The session cookie lasts 12 hours and ends with the key. Requests
    that change something must send the cookie `fairlane_csrf` as `X-CSRF-Token`."""
    scope = request.scope
    authentication: Authentication = scope["authentication"]
    app_context: AppContext = scope["app_context"]
    identity = await authentication.check_key(scope, scope["seen"], body.key.strip())
    cookie, session = app_context.sessions.begin(identity.key, app_context.engine.clock.now())
    token = app_context.sessions.csrf_token(session)
    return _with_cookies(request, cookie, token, SESSION_SECONDS)


@routes.add("GET", "/session", "public", example=SESSION)
async def get_session(request: Request) -> TypedResponse[SessionResponse]:
    """Get the role of the caller. Without a valid key or session, `signed_in` is false."""
    identity: Identity | None = request.scope["identity"]
    found: SessionResponse = {
        "signed_in": identity is not None,
        "role": identity.role if identity is not None else None,
        "tenant": identity.tenant if identity is not None else None,
        "act_as": identity is not None and identity.act_as,
        "set_priority": identity is not None and identity.set_priority,
        "version": version("fairlane"),
        "dev_mode": identity is not None and identity.key == DEVELOPER.key,
    }
    return serializers.answer(found)


@routes.add("DELETE", "/session", "public", example=None, status=204)
async def sign_out(request: Request) -> PlainTextResponse:
    """Sign out: the session ends everywhere, and the browser forgets its cookies."""
    app_context: AppContext = request.scope["app_context"]
    session: Session | None = request.scope.get("session")
    if session is not None:
        await app_context.sessions.end(session, app_context.engine.clock.now())
    return _with_cookies(request, "", "", 0)


def _with_cookies(request: Request, session: str, token: str, seconds: int) -> PlainTextResponse:
    """The browser says in `Origin` whether it uses HTTPS, also behind a proxy."""
    origin = request.headers.get("origin", "")
    secure = request.url.scheme == "https" or origin.startswith("https://")
    response = PlainTextResponse(status_code=204, headers={"Cache-Control": "no-store"})
    for name, value, readable in ((SESSION_COOKIE, session, False), (CSRF_COOKIE, token, True)):
        cookie = set_cookie(name, value, seconds=seconds, secure=secure, readable=readable)
        response.headers.append("Set-Cookie", cookie)
    return response
