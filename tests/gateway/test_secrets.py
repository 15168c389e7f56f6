"""S19: what callers, services and stores are told in confidence stands in no log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from urllib.parse import urlsplit, urlunsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from fairlane.webhooks.signature import PREFIX
from tests.gateway.site import ADMIN, FOREIGN, Site
from tests.worker.process import working

UPSTREAM, PRIORITY = "upstream-canary-3f9a", "priority-canary-77c1"
DATABASE, REDIS = "database-canary-b02e", "redis-canary-90dd"
TOLD, GUESSED = "told-canary-1c4b", "guessed-canary-5e5e"


def with_password(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}"))


async def test_a_whole_life_leaves_no_secret_in_any_log(site: Site) -> None:
    """Accepted, refused, failed, retried, called back, cancelled; by callers and by workers."""
    site.set("server", access_log=True)
    site.set("callbacks", private=["127.0.0.1"])
    site.set("services.image_gen", max_attempts=2)
    site.set("services.image_gen.headers", authorization="env:UPSTREAM")
    site.set("services.sleep", executor="pull", max_attempts=1)
    site.set("priority", url="http://127.0.0.1:1")
    site.set("priority.headers", authorization="env:PRIORITY")
    site.variables |= {"UPSTREAM": f"Bearer {UPSTREAM}", "PRIORITY": PRIORITY}
    if site.clustered:
        database = site.variables["DATABASE_URL"]
        user = urlsplit(database).username or "postgres"
        site.variables["DATABASE_URL"] = with_password(database, user, DATABASE)
        site.variables["REDIS_URL"] = with_password(site.variables["REDIS_URL"], "default", REDIS)
    running = await site.serve()
    admin, caller = await site.admin(running), await site.caller(running)
    made = (await admin.http.post("/admin/keys", json={"role": "worker"})).json()["key"]

    site.services["image_gen"].switches.status = 500
    hooked = {"callback_url": "https://127.0.0.1/hook?x=" + TOLD, "input_data": TOLD}
    failed = (await caller.submit("image_gen", **hooked))["job_id"]
    assert (await caller.ended(failed))["status"] == "failed"
    site.services["prompt_enhancer"].switches.drops = 1
    await caller.ended((await caller.submit("prompt_enhancer", input_data=TOLD))["job_id"])
    assert site.services["image_gen"].calls[0].headers["Authorization"] == f"Bearer {UPSTREAM}"

    for header in (f"Bearer {GUESSED}.{GUESSED}", f"Basic {GUESSED}", GUESSED):
        refused = await caller.http.get("/api/v1/jobs", headers={"Authorization": header})
        assert refused.status_code == 401
    await caller.http.get(f"/api/v1/jobs?key={GUESSED}")
    await caller.http.post("/api/v1/jobs", content=f'{{"input_data": "{TOLD}'.encode())
    ticket = (await caller.http.post(f"/api/v1/jobs/{failed}/ticket")).json()["ticket"]
    listening = f"{running.url.replace('http', 'ws', 1)}/ws/{failed}?ticket={ticket}"
    async with connect(listening) as socket:
        assert json.loads(await socket.recv())["type"] == "WAITING"
    with pytest.raises(InvalidStatus):
        await connect(listening)

    address = ("--url", running.url)
    async with working(*address, FAIRLANE_KEY=made, LOG=site.folder / "log") as worker:
        done = (await caller.submit("sleep", input_data={"seconds": 0}))["job_id"]
        assert (await caller.ended(done))["status"] == "completed"
        wrong = (await caller.submit("sleep", input_data={TOLD: TOLD}))["job_id"]
        assert (await caller.ended(wrong))["status"] == "failed"
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0

    running.signal(signal.SIGTERM)
    assert await running.ended() == 0
    log = site.log()
    assert log.count('"message":"request"') > 10
    assert "registered as" in log
    for secret in (ADMIN, made):
        assert secret.partition(".")[2] not in log
    for canary in (UPSTREAM, PRIORITY, DATABASE, REDIS, TOLD, GUESSED, ticket, PREFIX):
        assert canary not in log
    for line in log.splitlines():
        json.loads(line)


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("migrate",), ("keys", "list")])
@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{DATABASE}@127.0.0.1:1/x",
        f"postgresql://u:{DATABASE}@127.0.0.1:port/x",
        f"postgresql+asyncpg://u:{DATABASE}@[/x",
        f"mysql://u:{DATABASE}@127.0.0.1/x",
    ],
)
@pytest.mark.embedded
async def test_an_address_that_leads_nowhere_is_explained_without_its_password(
    command: tuple[str, ...], url: str
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    told = {
        "DATABASE_URL": url,
        "REDIS_URL": f"redis://default:{REDIS}@127.0.0.1:1",
        "FAIRLANE_SERVER__WAIT_FOR_STORES": "0",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlane", *command, env=kept | told, stdout=PIPE, stderr=STDOUT
    )
    said = (await process.communicate())[0].decode()
    assert process.returncode not in (0, None), said
    assert DATABASE not in said
    assert REDIS not in said
    assert "Traceback" not in said
