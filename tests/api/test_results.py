"""The result of a job alone: any JSON, or the bytes of a file that no browser runs."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane import FileResult
from fairlane.model.attempt import Fault
from fairlane.model.key import Role
from tests.api.server import Gateway
from tests.world import World

pytestmark = [pytest.mark.every_store, pytest.mark.timeout(60)]

HTML = b"<script>alert(document.domain)</script>"


async def completed(world: World, output: Any, name: str = "work") -> str:
    job = await world.submit(name)
    await world.engine.complete(await world.claim_one(), output)
    return job


@pytest.mark.parametrize(
    "output",
    [
        {"url": "https://cdn.example/song.wav", "content_type": "audio/wav", "bytes": 3},
        None,
        "text",
        [1, 2],
        {"content_type": "audio/wav", "bytes": 3, "base64": "not base64!"},
        {"content_type": "audio/wav", "bytes": 4, "base64": "UklG"},
        {"content_type": None, "bytes": 3, "base64": "UklG"},
        {"content_type": "audio/wav", "bytes": 3, "base64": "UklG", "title": "a song"},
    ],
)
async def test_a_result_is_returned_as_the_json_it_is(
    world: World, served: Gateway, output: Any
) -> None:
    job = await completed(world, output)
    async with served.client() as client:
        answer = await client.get(f"/api/v1/jobs/{job}/result")
        assert (answer.status_code, answer.json()) == (200, output)
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("content_type", "shown"),
    [
        ("audio/wav", "audio/wav"),
        ("Audio/L16; rate=16000", "audio/l16"),
        ("image/png", "image/png"),
        ("application/pdf", "application/pdf"),
        ("image/svg+xml", "application/octet-stream"),
        ("IMAGE/SVG+XML", "application/octet-stream"),
        ("text/html", "application/octet-stream"),
        ("application/xhtml+xml", "application/octet-stream"),
        ("audio/wav\r\nSet-Cookie: a=b", "application/octet-stream"),
        ("audio/", "application/octet-stream"),
        ("", "application/octet-stream"),
    ],
)
async def test_a_file_is_returned_as_an_attachment_that_no_browser_runs(
    world: World, served: Gateway, content_type: str, shown: str
) -> None:
    """S11: whatever type a worker gave it."""
    job = await completed(world, FileResult(HTML, content_type).json())
    async with served.client() as client:
        answer = await client.get(f"/api/v1/jobs/{job}/result")
        assert (answer.status_code, answer.content) == (200, HTML)
        assert answer.headers["content-type"] == shown
        assert answer.headers["content-disposition"] == "attachment"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers


async def test_the_result_of_a_pipeline_is_that_of_its_last_step(
    world: World, served: Gateway
) -> None:
    job = await world.submit("both")
    async with served.client() as client:
        for step in (1, 2):
            answer = await client.get(f"/api/v1/jobs/{job}/result")
            assert (answer.status_code, answer.json()["code"]) == (409, "not_finished")
            await world.engine.complete(await world.claim_one(), {"step": step})
        assert (await client.get(f"/api/v1/jobs/{job}/result")).json() == {"step": 2}


async def test_a_job_without_a_result_says_why(world: World, served: Gateway) -> None:
    async with served.client() as client:

        async def problem(job: str) -> tuple[int, str, str, Any]:
            answer = await client.get(f"/api/v1/jobs/{job}/result")
            said = answer.json()
            return answer.status_code, said["code"], said["state"], said.get("error")

        job = await world.submit()
        assert await problem(job) == (409, "not_finished", "queued", None)
        lease = await world.claim_one()
        assert await problem(job) == (409, "not_finished", "running", None)
        await world.engine.fail(lease, Fault.INVALID_INPUT, "too quiet")
        error = {"code": "INVALID_INPUT", "message": "too quiet", "resumable": False}
        assert await problem(job) == (409, "job_failed", "failed", error)
        cancelled = await world.submit()
        await world.engine.cancel(cancelled)
        assert (await problem(cancelled))[:3] == (409, "job_cancelled", "cancelled")
        dead = await world.submit("scarce")
        await world.engine.fail(await world.claim_one(), message="no")
        assert (await problem(dead))[1] == "job_dead"


async def test_a_result_is_for_those_who_may_see_the_job(world: World, served: Gateway) -> None:
    async with served.client(await served.key(Role.CLIENT)) as owner:
        sent = {"feature_name": "work", "user_id": "ada"}
        job = (await owner.post("/api/v1/jobs", json=sent)).json()["job_id"]
        await world.engine.complete(await world.claim_one(), "secret")
        assert (await owner.get(f"/api/v1/jobs/{job}/result")).json() == "secret"
    for key, status in (
        (await served.key(Role.CLIENT, "other"), 404),
        (await served.key(Role.CLIENT, act_as=False), 404),
        (await served.key(Role.READ), 200),
        (await served.key(Role.WORKER), 403),
    ):
        async with served.client(key) as client:
            answer = await client.get(f"/api/v1/jobs/{job}/result")
            assert answer.status_code == status
            assert ("secret" in answer.text) == (status == 200)
