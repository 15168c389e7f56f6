"""Services that answer with a file instead of JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import FileResult
from fairlane.model.catalog import Limits
from fairlane.model.endpoint import Endpoint
from fairlane.model.state import Code, State
from tests.dispatch.scene import Scene, called, scene
from tests.world import catalog

pytestmark = pytest.mark.embedded

SOUND = b"RIFF\x00\xff\n"


def answers(at: Scene, content_type: str, body: bytes = SOUND, status: int = 200) -> None:
    at.service.switches.status = status
    at.service.switches.body = body
    at.service.switches.headers = {"Content-Type": content_type}


@pytest.mark.parametrize(
    ("content_type", "stored"),
    [("audio/wav", "audio/wav"), ("Image/PNG; q=1", "image/png"), ("model/gltf-binary",) * 2],
)
async def test_an_answer_with_the_type_of_a_file_is_the_result_as_it_is(
    tmp_path: Path, content_type: str, stored: str
) -> None:
    async with scene(tmp_path) as at:
        answers(at, content_type)
        job = await at.run()
        assert job.state is State.COMPLETED
        found = (await at.world.engine.view(job.id)).context["step_0_work"]["data"]
        assert FileResult.read(found) == FileResult(SOUND, stored)


@pytest.mark.parametrize("content_type", ["text/html", "application/octet-stream", "", "audio/"])
async def test_an_answer_of_any_other_type_is_read_as_json(
    tmp_path: Path, content_type: str
) -> None:
    async with scene(tmp_path) as at:
        answers(at, content_type, b'{"data": 7}')
        job = await at.run()
        assert (await at.world.engine.view(job.id)).context["step_0_work"]["data"] == 7
        answers(at, content_type)
        error = (await at.run()).error
        assert error is not None
        assert error.code is Code.SERVICE_ERROR


async def test_a_file_that_is_sent_with_an_error_is_no_result(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        answers(at, "audio/wav", status=422)
        error = (await at.run()).error
        assert error is not None
        assert error.code is Code.INVALID_INPUT


@pytest.mark.parametrize(("size", "fits"), [(600, True), (900, False), (2000, False)])
async def test_a_file_may_have_three_quarters_of_the_bytes_of_a_result(
    tmp_path: Path, size: int, fits: bool
) -> None:
    """S13: as base64 it has a third more, and a little for its type."""
    settings = catalog(called("work", limit=1), limits=Limits(result_bytes=1000))
    async with scene(tmp_path, settings=settings, endpoint=Endpoint("", max_response=1500)) as at:
        answers(at, "audio/wav", b"x" * size)
        job = await at.run()
        assert (job.state is State.COMPLETED) == fits
        assert fits or (job.error is not None and job.error.code is Code.RESULT_TOO_LARGE)
