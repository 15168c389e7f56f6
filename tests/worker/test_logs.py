"""S19 in a program that logs everything: its workers, its clients, and a server beside them."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from fairlane import AsyncClient, TaskFailed, Worker
from fairlane.model.key import Role
from tests.worker.scene import WAYS, Way, scene

pytestmark = [pytest.mark.parametrize("way", WAYS), pytest.mark.timeout(60)]

TOLD, MADE, GUESSED = "told-canary-1c4b", "made-canary-08ab", "guessed-canary-5e5e"
NOT_OURS = ("websockets.client", "httpx", "httpcore")
"""The test's own clients."""


async def test_at_debug_no_secret_stands_in_any_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: Way
) -> None:
    caplog.set_level(logging.DEBUG)
    worker = Worker()

    @worker.task("draw")
    async def draw(text: str) -> str:
        if text == "wrong":
            raise TaskFailed(MADE)
        return MADE

    async with scene(tmp_path) as at:
        keys = {role: await at.served.key(role) for role in (Role.CLIENT, Role.WORKER)}
        working = at.working(worker, way, keys[Role.WORKER])
        async with working, AsyncClient(at.served.url, keys[Role.CLIENT]) as me:
            done = await me.submit("draw", {"text": TOLD}, user=TOLD)
            assert (await me.wait(done.job_id, timeout=20)).result == MADE
            for sent in ({"text": "wrong"}, {TOLD: TOLD}):
                failed = await me.submit("draw", sent)
                assert (await me.wait(failed.job_id, timeout=20)).status == "failed"
        client = at.served.client(keys[Role.CLIENT])
        async with client, at.served.client(GUESSED + "." + GUESSED) as stranger:
            assert (await stranger.get(f"/api/v1/jobs?key={GUESSED}")).status_code == 401
            made = await client.post(f"/api/v1/jobs/{done.job_id}/ticket")
            ticket = made.json()["ticket"]
        where = f"{at.served.url.replace('http', 'ws', 1)}/ws/{done.job_id}?ticket={ticket}"
        async with connect(where) as socket:
            assert json.loads(await socket.recv())["type"] == "WAITING"
    said = [each for each in caplog.records if not each.name.startswith(NOT_OURS)]
    assert said
    text = "\n".join(each.getMessage() + str(each.exc_text or "") for each in said)
    secrets = [credential.partition(".")[2] for credential in keys.values()]
    for secret in (*secrets, TOLD, MADE, GUESSED, ticket):
        assert secret not in text
