"""Every route, with every method and role: who passes is declared, and nobody else does."""

from __future__ import annotations

import inspect
import json
from typing import get_args

import pytest
from fastapi import FastAPI
from starlette.routing import Route
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from fairlane.api.app import App
from fairlane.api.auth.roles import ALLOWED, OPEN, Access
from fairlane.api.routing import GuardedRoute, GuardedSocket, unguarded
from fairlane.model.key import Role
from tests.api.server import Gateway

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ID = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"
NAMES = {
    "{job_id}": ID,
    "{execution_id}": ID,
    "{user_id}": "ada",
    "{name}": "none",
    "{key_id}": "none",
    "{region}": "EU",
    "{service}": "scarce",
    "{worker_id}": "none",
    "{file}": "swagger-ui.css",
    "{token}": "none",
    "{bulk_id}": "none",
}


def concrete(path: str) -> str:
    for name, value in NAMES.items():
        path = path.replace(name, value)
    assert "{" not in path, f"say in NAMES what to put into {path}"
    return path


def routes(app: App) -> list[GuardedRoute]:
    return [route for route in app.api.routes if isinstance(route, GuardedRoute)]


async def test_every_route_has_somebody_who_may_use_it(served: Gateway) -> None:
    assert unguarded(served.app.api) == []
    assert len(routes(served.app)) > 25
    assert set(ALLOWED) == set(get_args(Access))


async def test_no_request_waits_for_a_thread(served: Gateway) -> None:
    """The framework sends every function that is not async to one, and its dependencies too."""
    found = [route.dependant for route in routes(served.app)]
    for dependant in found:
        found += dependant.dependencies
        assert inspect.iscoroutinefunction(dependant.call), dependant.call


async def test_a_route_that_nobody_declared_is_found(served: Gateway) -> None:
    forgotten = FastAPI(openapi_url=None)
    forgotten.router.routes.append(Route("/new", lambda _: None))
    assert unguarded(forgotten) == ["/new"]


async def test_nobody_passes_without_a_key(served: Gateway) -> None:
    """S2: every route and method, and every path that is none."""
    await served.key()
    found = routes(served.app)
    paths = {concrete(each.path) for each in found if each.access != "public"} - OPEN
    paths |= {"/nope", "/api/v1/jobs/", "/admin", "/ws", "/ws/x", "/docs/", "//admin/keys"}
    paths |= {"/livez/", "/assets/none.js", "/session/", "/session/x", "/fleet/"}
    async with served.client() as client:
        for path in sorted(paths):
            for method in METHODS:
                answer = await client.request(method, path)
                assert answer.status_code == 401, (method, path)
        for path in sorted(OPEN):
            assert (await client.get(path)).text == "ok"
            assert (await client.head(path)).status_code == 200
            assert (await client.post(path)).status_code == 405


@pytest.mark.parametrize("role", Role)
async def test_a_role_passes_where_it_is_named_and_nowhere_else(
    served: Gateway, role: Role
) -> None:
    """S5: a wrong role is 403 before anything is looked at; a right one is anything else."""
    async with served.client(await served.key(role)) as client:
        for route in routes(served.app):
            path = concrete(route.path)
            own = {
                method: each.access
                for each in routes(served.app)
                if each.path_regex.match(path)
                for method in each.methods or ()
            }
            for method in METHODS:
                answer = await client.request(method, path)
                if path in OPEN:
                    expected = answer.status_code in (200, 405)
                elif method not in own:
                    expected = answer.status_code == 405
                    assert answer.headers["allow"] == ", ".join(sorted(own))
                elif own[method] == "public" or role in ALLOWED[own[method] or "admin"]:
                    expected = answer.status_code not in (401, 403, 405, 500)
                else:
                    expected = answer.status_code == 403
                assert expected, (method, path, answer.status_code, answer.text)


@pytest.mark.parametrize("role", [None, *Role])
async def test_a_socket_opens_only_for_who_may_listen(served: Gateway, role: Role | None) -> None:
    """S10: refused before the upgrade."""
    key = await served.key(role or Role.CLIENT)
    headers = {"Authorization": f"Bearer {key}"} if role is not None else {}
    sockets = [route for route in served.app.api.routes if isinstance(route, GuardedSocket)]
    for route in sockets:
        url = f"ws://127.0.0.1:{served.port}{concrete(route.path)}"
        if role is not None and role in ALLOWED[route.access or "admin"]:
            async with connect(url, additional_headers=headers) as socket:
                if route.path == "/ws":
                    assert "full" in json.loads(await socket.recv())
                    continue
                await socket.wait_closed()
                assert socket.close_code == 4404
        else:
            with pytest.raises(InvalidStatus) as caught:
                await connect(url, additional_headers=headers)
            assert caught.value.response.status_code == (401 if role is None else 403)
    assert sockets
