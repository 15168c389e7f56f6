"""Browser sessions: sign-in with a key, the CSRF token, and when a session ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from fairlane.api.auth.brute_force import MAX_FAILURES
from fairlane.api.auth.sessions import CSRF_COOKIE, SESSION_COOKIE, SESSION_SECONDS
from fairlane.clock import seconds
from fairlane.model.key import Role
from tests.api.server import Gateway
from tests.world import World

JOB = {"service": "scarce", "input_data": {"x": 1}}


@asynccontextmanager
async def signed_in(served: Gateway, key: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser with a session, and the CSRF token in its headers."""
    async with served.client(headers={"Origin": served.url}) as browser:
        answer = await browser.post("/session", json={"key": key})
        assert answer.status_code == 204, answer.text
        browser.headers["X-CSRF-Token"] = browser.cookies[CSRF_COOKIE]
        yield browser


@pytest.mark.every_store
async def test_a_session_can_do_what_its_key_can(served: Gateway) -> None:
    key = await served.key(Role.CLIENT)
    async with signed_in(served, key) as browser:
        answer = await browser.post("/api/v1/jobs", json=JOB)
        assert answer.status_code == 202
        assert (await browser.get("/api/v1/jobs")).json()["jobs"]
        assert (await browser.get("/admin/keys")).status_code == 403, "the server decides roles"
        found = (await browser.get("/session")).json()
        assert found == {
            "signed_in": True,
            "role": "client",
            "tenant": "acme",
            "act_as": True,
            "set_priority": False,
            "version": found["version"],
            "dev_mode": False,
        }


async def test_without_a_session_the_caller_is_told_so(served: Gateway) -> None:
    async with served.client() as client:
        assert (await client.get("/session")).json()["dev_mode"] is True
        await served.key()
        found = (await client.get("/session")).json()
    assert (found["signed_in"], found["role"], found["dev_mode"]) == (False, None, False)


async def test_the_session_cookie_cannot_be_read_by_a_script(served: Gateway) -> None:
    """S11: HttpOnly, SameSite=Strict, and Secure where the browser uses HTTPS."""
    key = await served.key()
    async with served.client() as client:
        answer = await client.post("/session", json={"key": key})
        first, second = answer.headers.get_list("set-cookie")
        assert first.startswith(f"{SESSION_COOKIE}=")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(first.split("; "))
        assert "Secure" not in first
        assert second.startswith(f"{CSRF_COOKIE}=")
        assert "HttpOnly" not in second
        assert "SameSite=Strict" in second
        origin = {"Origin": served.url.replace("http://", "https://")}
        answer = await client.post("/session", json={"key": key}, headers=origin)
        assert all("Secure" in each for each in answer.headers.get_list("set-cookie"))


async def test_a_change_without_the_csrf_token_is_refused(served: Gateway) -> None:
    """S11: a cookie alone changes nothing."""
    key = await served.key(Role.ADMIN)
    async with signed_in(served, key) as browser, signed_in(served, key) as other:
        tokens = ["", "wrong", other.cookies[CSRF_COOKIE]]
        for token in tokens:
            browser.headers["X-CSRF-Token"] = token
            for method, path in (
                ("POST", "/api/v1/jobs"),
                ("PUT", "/admin/services/scarce"),
                ("DELETE", "/admin/keys/none"),
            ):
                answer = await browser.request(method, path, json=JOB)
                assert (answer.status_code, answer.json()["code"]) == (403, "csrf_token_missing")
        assert (await browser.get("/api/v1/jobs")).status_code == 200
    assert not (await served.engine.list_jobs()).jobs


async def test_a_page_of_another_origin_can_neither_sign_in_nor_change_anything(
    served: Gateway,
) -> None:
    """S11: login CSRF and CSRF."""
    key = await served.key(Role.ADMIN)
    evil = {"Origin": "https://evil.example"}
    async with signed_in(served, key) as browser:
        for path, body in (("/session", {"key": key}), ("/api/v1/jobs", JOB)):
            answer = await browser.post(path, json=body, headers=evil)
            assert (answer.status_code, answer.json()["code"]) == (403, "origin_not_allowed")


@pytest.mark.parametrize("origin", ["https://evil.example", None])
async def test_a_cookie_opens_the_dashboard_only_for_pages_of_this_origin(
    served: Gateway, origin: str | None
) -> None:
    """S10: cross-site WebSocket hijacking. A browser always sends its origin."""
    key = await served.key(Role.ADMIN)
    url = f"ws://127.0.0.1:{served.port}/ws"
    async with signed_in(served, key) as browser:
        cookie = f"{SESSION_COOKIE}={browser.cookies[SESSION_COOKIE]}"
    headers = {"Cookie": cookie}
    async with connect(url, additional_headers=headers | {"Origin": served.url}) as socket:
        assert "full" in json.loads(await socket.recv())
    if origin is not None:
        headers["Origin"] = origin
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, additional_headers=headers)
    assert caught.value.response.status_code == 403


@pytest.mark.every_store
async def test_a_session_ends_with_its_key(served: Gateway) -> None:
    key = await served.key(Role.CLIENT)
    await served.key(Role.ADMIN)
    async with signed_in(served, key) as browser:
        name = key.partition(".")[0]
        assert await served.engine.api_keys.revoke(name, served.engine.clock.now(), "test")
        served.app.app_context.key_cache.forget(name)
        assert (await browser.get("/api/v1/jobs")).status_code == 401
        assert (await browser.get("/session")).json()["signed_in"] is False


async def test_a_session_ends_after_twelve_hours(world: World, served: Gateway) -> None:
    key = await served.key(Role.CLIENT)
    async with signed_in(served, key) as browser:
        world.clock.advance(seconds(SESSION_SECONDS - 1))
        assert (await browser.get("/api/v1/jobs")).status_code == 200
        world.clock.advance(seconds(1))
        assert (await browser.get("/api/v1/jobs")).status_code == 401


async def test_signing_out_ends_the_session_everywhere(served: Gateway) -> None:
    """Not only the browser forgets the cookie: a copy of it is worthless too."""
    key = await served.key(Role.CLIENT)
    async with signed_in(served, key) as browser:
        copied = {"Cookie": f"{SESSION_COOKIE}={browser.cookies[SESSION_COOKIE]}"}
        assert (await browser.delete("/session")).status_code == 204
        assert SESSION_COOKIE not in browser.cookies
        assert (await browser.get("/api/v1/jobs")).status_code == 401
        async with served.client(headers=copied) as thief:
            assert (await thief.get("/api/v1/jobs")).status_code == 401


@pytest.mark.parametrize("cookie", ["", "x", "AAAA", "é", "a" * 9000, "WyJhIl0", '"'])
async def test_a_cookie_that_was_not_issued_here_is_no_session(
    served: Gateway, cookie: str
) -> None:
    await served.key()
    async with served.client(headers={"Cookie": f"{SESSION_COOKIE}={cookie}".encode()}) as client:
        assert (await client.get("/api/v1/jobs")).status_code == 401


async def test_wrong_keys_are_counted_at_the_sign_in_too(served: Gateway) -> None:
    """S17: further wrong keys get 429, and the right one still passes."""
    key = await served.key()
    name = key.partition(".")[0]
    wrong = {"key": f"{name}.{'x' * 43}"}
    async with served.client() as client:
        codes = [
            (await client.post("/session", json=wrong)).status_code for _ in range(MAX_FAILURES + 2)
        ]
        assert codes == [401] * (MAX_FAILURES + 1) + [429]
        assert (await client.post("/session", json={"key": key})).status_code == 204


# --- pages ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/", "/s/image_gen", "/jobs", "/jobs/x", "/fleet", "/p/token"])
async def test_every_view_is_a_page_with_a_strict_policy(served: Gateway, path: str) -> None:
    """S11, with Trusted Types. The page holds no data, so it needs no key."""
    await served.key()
    async with served.client() as client:
        answer = await client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        policy = answer.headers["content-security-policy"].split("; ")
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "trusted-types 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
        assert (await client.post(path)).status_code == 405
        assert (await client.get(path, headers={"Host": "evil.example"})).status_code == 421
