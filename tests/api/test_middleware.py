"""Before a route is reached: keys, names, origins, sizes."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlane.api.auth.brute_force import MAX_FAILURES, MAX_REMEMBERED_ADDRESSES, FailedLogins
from fairlane.api.logs import JsonLines
from fairlane.api.routing import GuardedRoute
from fairlane.clock import seconds
from fairlane.config.settings import ServerSettings
from fairlane.model.key import Role
from tests.api.conftest import SETTINGS
from tests.api.raw import exchange
from tests.api.server import Gateway, gateway
from tests.core import core_of
from tests.stores import Embedded
from tests.world import World

JOB = {"service": "work"}


# --- keys ----------------------------------------------------------------------------------------
@pytest.mark.every_store
async def test_a_key_opens_until_it_is_revoked_or_runs_out(world: World, served: Gateway) -> None:
    """S4: with the first key the development mode is over."""
    async with served.client() as anybody:
        assert (await anybody.get("/api/v1/jobs")).status_code == 200
        made = await anybody.post("/admin/keys", json={"role": "admin", "tenant": "acme"})
        assert made.status_code == 201
        refused = await anybody.get("/api/v1/jobs")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    async with served.client(made.json()["key"]) as admin:
        later = {"role": "client", "expires_at": "2023-11-14T22:14:20Z"}
        short = (await admin.post("/admin/keys", json=later)).json()
        async with served.client(short["key"]) as client:
            assert (await client.post("/api/v1/jobs", json=JOB)).status_code == 202
            world.clock.advance(seconds(61))
            assert (await client.post("/api/v1/jobs", json=JOB)).status_code == 401
        other = (await admin.post("/admin/keys", json={"role": "client"})).json()
        async with served.client(other["key"]) as client:
            assert (await client.get("/api/v1/jobs")).status_code == 200
            revoked = await admin.delete(f"/admin/keys/{other['id']}")
            assert revoked.json()["revoked_at"] is not None
            assert (await client.get("/api/v1/jobs")).status_code == 401
        assert (await admin.delete("/admin/keys/none")).status_code == 404
        listed = await admin.get("/admin/keys")
        assert len(listed.json()["keys"]) == 3
        assert short["key"].partition(".")[2] not in listed.text
        audit = (await admin.get("/admin/audit")).json()["changes"]
        assert [each["action"] for each in audit][:2] == ["revoke key", "add key"]
        assert audit[0]["actor"].startswith("acme/fl")


async def test_a_key_that_another_process_revoked_dies_within_seconds(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.api.auth.key_cache.KEY_CACHE_SECONDS", 0)
    key = await served.key()
    async with served.client(key) as client:
        assert (await client.get("/api/v1/jobs")).status_code == 200
        now = core_of(world.engine).now()
        await core_of(world.engine).ledger.keys.revoke(key.partition(".")[0], now, "elsewhere")
        assert (await client.get("/api/v1/jobs")).status_code == 401


WRONG = [
    b"Bearer",
    b"Bearer ",
    b"Bearer x",
    b"Bearer x.y",
    b"Basic YTpi",
    b"Bearer ' OR 1=1 --." + b"s" * 40,
    b"Bearer a\x00b." + b"s" * 40,
    b"Bearer " + b"x" * 8000 + b".y",
    "Bearer ключ.".encode() + b"s" * 40,
    b"Bearer fl0000000000000000." + b"s" * 43,
]


@pytest.mark.every_store
async def test_whatever_stands_in_the_header_it_is_401(served: Gateway) -> None:
    """S4: never 500."""
    await served.key()
    for given in WRONG:
        if b"\0" in given:
            continue
        answer = await exchange(
            served.port, b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + given
        )
        assert answer.status == 401, given
        assert answer.json["code"] == "unauthorized"


async def test_two_credentials_are_none(served: Gateway) -> None:
    key = (await served.key()).encode()
    header = b"\r\nAuthorization: Bearer " + key
    request = b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost"
    assert (await exchange(served.port, request + header)).status == 200
    assert (await exchange(served.port, request + header + header)).status == 401


async def test_who_guesses_keys_has_to_wait(served: Gateway) -> None:
    """S17: ten wrong secrets a minute for one key from one place; others are not held up."""
    key = await served.key()
    name = key.partition(".")[0]
    async with served.client(f"{name}.{'x' * 43}") as guesser, served.client(key) as owner:
        codes = [(await guesser.get("/api/v1/jobs")).status_code for _ in range(MAX_FAILURES + 2)]
        assert codes == [401] * (MAX_FAILURES + 1) + [429]
        assert (await guesser.get("/api/v1/jobs")).headers["retry-after"] == "60"
        assert (await owner.get("/api/v1/jobs")).status_code == 200, "it has the right secret"
        assert (await guesser.get("/api/v1/jobs")).status_code == 429, "that helps nobody else"
    other = await served.key()
    async with served.client(other) as client:
        assert (await client.get("/api/v1/jobs")).status_code == 200


@pytest.mark.every_store
async def test_a_worker_is_not_locked_out_by_wrong_secrets(served: Gateway) -> None:
    """S17: they come from the same address, behind the same proxy perhaps."""
    key = await served.key(Role.WORKER)
    wrong = f"{key.partition('.')[0]}.{'x' * 43}"
    async with served.client(key) as worker, served.client(wrong) as guesser:
        registered = await worker.post("/internal/workers/register", json={})
        beat = f"/internal/workers/{registered.json()['worker_id']}/heartbeat"
        codes = {(await guesser.post(beat, json={})).status_code for _ in range(MAX_FAILURES + 5)}
        assert codes == {401, 429}
        assert (await worker.post(beat, json={})).status_code == 200


def test_the_table_of_guessers_has_a_fixed_size() -> None:
    failures = FailedLogins()
    for _ in range(MAX_FAILURES + 1):
        failures.note("here", "k")
    assert failures.too_many("here", "k")
    assert not failures.too_many("there", "k")
    for i in range(MAX_REMEMBERED_ADDRESSES):
        failures.note(f"10.0.{i}", "k")
    assert not failures.too_many("here", "k"), "the oldest makes room"


async def test_no_secret_is_kept_or_logged(
    world: World, served: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """S4, S19"""
    caplog.set_level(logging.DEBUG)
    key = await served.key()
    secret = key.partition(".")[2]
    async with served.client(key) as client:
        canary = "canary-5d1f"
        await client.post(
            "/api/v1/jobs?note=" + canary, json={"service": "none", "input_data": canary}
        )
        await client.get("/api/v1/jobs/" + canary)
    ours = ("fairlane", "uvicorn")
    said = [record.getMessage() for record in caplog.records if record.name.startswith(ours)]
    assert not [line for line in said if secret in line or canary in line]
    for part in world.path.parent.iterdir():
        assert secret.encode() not in part.read_bytes()


# --- before the body -----------------------------------------------------------------------------
async def test_a_stranger_is_refused_before_a_body_is_read(served: Gateway) -> None:
    """S3: a gigabyte is announced, and nothing of it is waited for."""
    await served.key()
    answer = await exchange(
        served.port,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1073741824",
        patience=2,
    )
    assert (answer.status, answer.headers["connection"]) == (401, "close")


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"Content-Length: 1048577", 413, "too_large"),
        (b"Content-Encoding: gzip\r\nContent-Length: 20", 415, "encoded_body"),
        (b"X-Long: " + b"x" * 17_000 + b"\r\nContent-Length: 2", 431, "headers_too_large"),
    ],
)
async def test_what_is_too_much_is_refused_before_it_is_read(
    served: Gateway, head: bytes, status: int, code: str
) -> None:
    """S13"""
    answer = await exchange(
        served.port, b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + head, patience=2
    )
    assert (answer.status, answer.json["code"]) == (status, code)


NESTED: Any = 1
for _ in range(40):
    NESTED = [NESTED]
BOMBS = [
    (b"[" * 100_000, "application/json", 422),
    (b'{"service": "work", "input_data": ' + b"[" * 2000 + b"]" * 2000 + b"}", "json", 422),
    (json.dumps({"service": "work", "input_data": NESTED}).encode(), "json", 422),
    (json.dumps({"service": "work", "input_data": [0] * 10_001}).encode(), "json", 422),
    (b'{"service": "work", "input_data": NaN}', "json", 422),
    (b'{"service": "work", "input_data": "\\ud800"}', "json", 422),
    (b'{"service": "work", "input_data": "\\u0000"}', "json", 422),
    (b'{"service": "work", "user_id": "a\\u0000"}', "json", 422),
    (b'{"service": "work", "tags": ["a\\u0000"]}', "json", 422),
    (b'{"service": "work"', "json", 400),
    (b"\xff\xfe", "json", 400),
    (b'{"service": "work"}', "text/plain", 415),
    (b"service=work", "application/x-www-form-urlencoded", 415),
    (b"", "json", 400),
    (b"null", "json", 422),
    (b'{"service": "work", "srvice": 1}', "json", 422),
    (b'{"service": "work", "duration": "5"}', "json", 422),
    (b'{"service": "work", "duration": true}', "json", 422),
]


async def test_bombs_do_not_go_off(served: Gateway) -> None:
    """S13, S18"""
    async with served.client() as client:
        for body, kind, status in BOMBS:
            media = "application/json" if kind == "json" else kind
            answer = await client.post(
                "/api/v1/jobs", content=body, headers={"Content-Type": media}
            )
            assert answer.status_code == status, (body[:60], answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
        depth = b'{"service": "work", "input_data": ' + b"[" * 31 + b"]" * 31 + b"}"
        fine = await client.post(
            "/api/v1/jobs", content=depth, headers={"Content-Type": "application/json"}
        )
        assert fine.status_code == 202
        other = await client.put("/admin/services/work", content=b"{", headers=JSON)
        assert other.status_code == 400
        other = await client.put("/admin/services/work", content=b"[" * 2000, headers=JSON)
        assert other.status_code == 422


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
async def test_a_body_in_another_encoding_is_told_so(served: Gateway, encoding: str) -> None:
    async with served.client() as client:
        body = json.dumps(JOB).encode(encoding)
        refused = await client.post("/api/v1/jobs", content=body, headers=JSON)
        assert (refused.status_code, refused.json()["code"]) == (400, "malformed_json")
        assert refused.json()["detail"] == "send the body as UTF-8 without a byte order mark"
        body = b'{"service": "w\xf6rk"}'
        refused = await client.post("/api/v1/jobs", content=body, headers=JSON)
        assert (refused.status_code, refused.json()["code"]) == (400, "malformed_json")
        assert refused.json()["detail"] == "send the body as UTF-8; its byte 14 is something else"


async def test_a_body_in_many_pieces_has_the_same_bounds(served: Gateway) -> None:
    async with served.client() as client:

        async def pieces(number: int) -> Any:
            for _ in range(number):
                yield b" " * 65_536
            yield b'{"service": "work"}'

        fits = await client.post("/api/v1/jobs", content=pieces(15), headers=JSON)
        assert fits.status_code == 202
        large = await client.post("/api/v1/jobs", content=pieces(17), headers=JSON)
        assert large.status_code == 413


async def test_a_body_that_does_not_come_is_not_waited_for(world: World) -> None:
    """S13: 15 s by default."""
    async with gateway(world.engine, ServerSettings(body_timeout=0.05)) as served:
        for path in (b"/api/v1/jobs", b"/admin/keys"):
            answer = await exchange(
                served.port,
                b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 100",
                b'{"se',
            )
            assert (answer.status, answer.json["code"]) == (408, "too_slow")


# --- names and pages -----------------------------------------------------------------------------
async def test_it_answers_only_to_its_names(world: World, served: Gateway) -> None:
    """S26: a page that points its own name here gets nothing."""
    async with served.client(headers={"Host": "evil.example"}) as client:
        assert (await client.get("/api/v1/jobs")).status_code == 421
        assert (await client.get("/livez")).status_code == 200
    async with (
        gateway(world.engine, ServerSettings(allowed_hosts=("queue.example",))) as named,
        named.client(headers={"Host": "Queue.example:81"}) as client,
    ):
        assert (await client.get("/api/v1/jobs")).status_code == 200


async def test_a_foreign_page_changes_nothing(world: World, served: Gateway) -> None:
    job = await world.submit()
    async with served.client(headers={"Origin": "https://evil.example"}) as client:
        answer = await client.post(f"/api/v1/jobs/{job}/resume")
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_not_allowed")
        assert "access-control-allow-origin" not in answer.headers
    async with served.client(headers={"Origin": served.url}) as client:
        assert (await client.delete(f"/api/v1/jobs/{job}")).status_code in (200, 404)


async def test_other_pages_of_this_machine_may_change_things_only_in_development(
    world: World, served: Gateway
) -> None:
    job = await world.submit()
    page = {"Origin": "http://localhost:3000"}
    async with served.client(headers=page) as developer:
        assert (await developer.delete(f"/api/v1/jobs/{job}")).status_code == 200
    async with served.client(await served.key(), headers=page) as tenant:
        answer = await tenant.delete(f"/api/v1/jobs/{job}")
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_not_allowed")


async def test_only_our_proxies_say_where_a_request_came_from(world: World) -> None:
    """S26: a guesser cannot change their address by saying so."""
    ours = replace(ServerSettings(), trusted_proxies=("127.0.0.0/8",))
    for server, expected in ((ServerSettings(), 429), (ours, 401)):
        async with gateway(world.engine, server) as served:
            name = (await served.key()).partition(".")[0]
            codes = []
            for i in range(MAX_FAILURES + 2):
                headers = {"X-Forwarded-For": f"198.51.100.{i}, 127.0.0.1"}
                async with served.client(f"{name}.{'x' * 43}", headers=headers) as guesser:
                    codes.append((await guesser.get("/api/v1/jobs")).status_code)
            assert codes[-1] == expected


# --- problems ------------------------------------------------------------------------------------
async def test_every_problem_says_the_same_things(served: Gateway) -> None:
    async with served.client() as client:
        answer = await client.get("/api/v1/jobs/none", headers={"X-Request-ID": "abc-1"})
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["x-request-id"] == "abc-1"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.json() == {
            "type": "urn:fairlane:problem:not_found",
            "title": "Not Found",
            "status": 404,
            "detail": 'no job "none"',
            "instance": "/api/v1/jobs/none",
            "code": "not_found",
            "request_id": "abc-1",
        }
        odd = await client.get("/api/v1/jobs/none", headers={"X-Request-ID": "a b"})
        assert odd.headers["x-request-id"] != "a b"


async def test_what_breaks_inside_stays_inside(
    world: World, served: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S18"""

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("SELECT secret FROM /var/lib at db.internal")

    for verb in ("view", "submit", "list_jobs"):
        monkeypatch.setattr(world.engine, verb, broken)
    job = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"
    async with served.client() as client:
        for answer in (
            await client.get(f"/api/v1/jobs/{job}"),
            await client.post("/api/v1/jobs", json=JOB),
            await client.get("/api/v1/jobs"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (500, "internal")
            assert "SELECT" not in answer.text


def test_nobody_writes_a_line_of_the_log_by_what_they_send() -> None:
    """S19: nor what a terminal would obey."""
    sent = '/x\r\n{"level": "error"}\x1b[2J\0'
    record = logging.makeLogRecord({"msg": "request %s", "args": (sent,), "path": sent})
    line = JsonLines().format(record)
    assert all(letter >= " " for letter in line)
    assert json.loads(line)["path"] == sent


async def test_a_ledger_that_is_away_is_503_at_once(world: World, served: Gateway) -> None:
    await core_of(world.engine).ledger.close()
    async with served.client() as client:
        for answer in (
            await client.get("/api/v1/jobs"),
            await client.post("/api/v1/jobs", json=JOB),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
            assert answer.headers["retry-after"] == "1"
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/livez")).text == "ok"


class FullDisk(sqlite3.Connection):
    """A disk that is full when the test says so."""

    full = False

    def execute(self, statement: str, *args: object) -> sqlite3.Cursor:
        if FullDisk.full and statement == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(statement, *args)  # type: ignore[arg-type]


async def test_a_process_whose_disk_is_full_is_not_ready_until_there_is_room(
    tmp_path: Path,
) -> None:
    """I32: a load balancer sends submits to those who can write them down."""
    async with (
        World(SETTINGS, tmp_path / "ledger.db", FullDisk, Embedded()) as world,
        gateway(world.engine) as served,
        served.client() as client,
    ):
        FullDisk.full = True
        try:
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/livez")).status_code == 200
        finally:
            FullDisk.full = False
        while (await client.get("/readyz")).status_code != 200:
            pass


# --- whose it is ---------------------------------------------------------------------------------
@pytest.mark.every_store
async def test_a_key_sets_only_what_it_may(served: Gateway) -> None:
    """S6"""
    key = await served.key(act_as=False)
    async with served.client(key) as client:
        for field, value, flag in (
            ("user_id", "ada", "--act-as"),
            ("priority", "high", "--set-priority"),
        ):
            answer = await client.post("/api/v1/jobs", json={**JOB, field: value})
            assert (answer.status_code, answer.json()["code"]) == (422, "field_not_allowed")
            assert answer.json()["field"] == field
            assert f"fairlane keys create {flag}" in answer.json()["detail"]
            batch = await client.post("/api/v1/jobs:batch", json={"jobs": [{**JOB, field: value}]})
            assert batch.json()["results"][0]["error"]["code"] == "field_not_allowed"
    async with served.client(await served.key(set_priority=True)) as client:
        answer = await client.post("/api/v1/jobs", json={**JOB, "user_id": "x", "priority": "high"})
        assert answer.json()["priority"] == "high"


def by_id(served: Gateway) -> list[tuple[str, str]]:
    """Every method and path that names a job, or a part of one."""
    return [
        (method, re.sub(r"{(job|execution)_id}", "{id}", route.path))
        for route in served.app.api.routes
        if isinstance(route, GuardedRoute) and re.search(r"{(job|execution)_id}", route.path)
        for method in route.methods or ()
    ]


NEEDED = {"/api/v1/slots/{id}/renew": {"lease": "x"}, "/api/v1/slots/{id}/release": {"lease": "x"}}
"""What a route must be sent before it looks."""


@pytest.mark.every_store
async def test_a_foreign_job_looks_exactly_like_none(world: World, served: Gateway) -> None:
    """S7: byte by byte, on every route that names a job."""
    ours, theirs = await served.key(Role.ADMIN), await served.key(Role.ADMIN, "other")
    async with served.client(ours) as client:
        sent = {"service": "work", "matrix": {"n": ["1"]}, "user_id": "ada"}
        job = (await client.post("/api/v1/jobs", json=sent)).json()["job_id"]
        cells = (await client.get(f"/api/v1/jobs/{job}/executions")).json()["executions"]
    none = "018f4c1e-7d2a-7c3b-9f10-5a6b7c8d9e0f"
    async with served.client(theirs, headers={"X-Request-ID": "same"}) as stranger:
        assert len(by_id(served)) > 15
        for method, path in by_id(served):
            bodies = []
            for each in (job, cells[0]["execution_id"], none):
                answer = await stranger.request(method, path.format(id=each), json=NEEDED.get(path))
                assert answer.status_code == 404, (method, path)
                bodies.append((answer.text.replace(each, "ID"), sorted(answer.headers.items())))
            assert bodies[0] == bodies[1] == bodies[2], path
        assert (await stranger.get("/api/v1/jobs")).json()["jobs"] == []
        assert (await stranger.get("/admin/queue-dead")).json()["jobs"] == []
    assert (await world.job(job)).live


async def test_strings_of_all_kinds_are_only_strings(served: Gateway) -> None:
    """S14"""
    odd = ["'; DROP TABLE jobs; --", '"', "\\", "%", "_", "\u202e", "𝔘", "a\nb", "{}", "$1"]
    async with served.client() as client:
        for text in odd:
            sent = {"service": "work", "user_id": text, "tags": [text], "input_data": text}
            answer = await client.post("/api/v1/jobs", json=sent)
            assert answer.status_code == 202, text
            job = answer.json()["job_id"]
            for query in ({"user_id": text}, {"tag": text}):
                found = (await client.get("/api/v1/jobs", params=query)).json()["jobs"]
                assert [each["job_id"] for each in found] == [job]
        for wrong in ("user_id=%00", "tag=%00", "feature_name='", "limit=x", "cursor=%00"):
            assert (await client.get(f"/api/v1/jobs?{wrong}")).status_code in (400, 422)
        listed = await asyncio.gather(*(client.get("/api/v1/jobs") for _ in range(3)))
        assert {len(each.json()["jobs"]) for each in listed} == {len(odd)}
