"""Every preset starts, and what `fairlane serve` prints runs to its end on a fresh start."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from fairlane.config.load import load, preset_names, without_settings
from fairlane.demo.processes import free_port
from tests.gateway.site import LONG_ENOUGH, Caller


def elsewhere(preset: str) -> dict[str, str]:
    """The services of a preset at ports that are free here."""
    found = {}
    for name, endpoint in load(preset=preset).endpoints.items():
        places = [f"REGIONS__{region}__URL" for region in endpoint.regions] or ["URL"]
        for place in places:
            variable = f"FAIRLANE_SERVICES__{name}__{place}".upper()
            found[variable] = f"http://127.0.0.1:{free_port(0)}"
    return found


@asynccontextmanager
async def shell(
    command: str, folder: Path, variables: Mapping[str, str], said: Callable[[str], bool]
) -> AsyncIterator[str]:
    """A command in a terminal of its own, from when it has said this."""
    environment = {**without_settings(os.environ), **variables}
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"exec {command}", cwd=folder, env=environment, stdout=PIPE
    )
    try:
        yield await _heard(process, said)
    finally:
        process.kill()
        await process.communicate()


async def _heard(process: Process, said: Callable[[str], bool]) -> str:
    assert process.stdout is not None
    text = ""
    async with asyncio.timeout(LONG_ENOUGH):
        while not said(text):
            line = await process.stdout.readline()
            assert line, text
            text += line.decode()
    return text


async def answer(command: str, folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", command, cwd=folder, stdout=PIPE, stderr=DEVNULL
    )
    said, _ = await process.communicate()
    return said.decode()


@pytest.mark.embedded
@pytest.mark.parametrize("preset", preset_names())
async def test_what_serve_prints_runs_to_its_end_on_a_fresh_start(
    tmp_path: Path, preset: str
) -> None:
    variables = elsewhere(preset)
    serve = f"{sys.executable} -m fairlane serve --port 0 --preset {preset}"
    async with shell(serve, tmp_path, variables, lambda text: "curl " in text) as said:
        echo, curl = said.partition("try it:\n")[2].splitlines()
        async with shell(echo, tmp_path, variables, lambda text: text.startswith("echo ")):
            accepted = json.loads(await answer(curl, tmp_path))
            url = re.findall(r"http://127\.0\.0\.1:\d+", curl)[0]
            async with Caller(url, "none") as caller:
                caller.http.headers.pop("Authorization")
                job = await caller.ended(accepted["job_id"])
    assert (job["status"], job["error"]) == ("completed", None)


@pytest.mark.embedded
@pytest.mark.parametrize("called", [False, True])
async def test_the_echo_passes_quality_checks(tmp_path: Path, *, called: bool) -> None:
    """What a new user sees with a check whose service does not exist yet."""
    check = f'url = "http://127.0.0.1:{free_port(0)}"' if called else ""
    (tmp_path / "fairlane.toml").write_text(
        f"[services.draw]\n[services.draw.quality_check]\n{check}\n"
    )
    serve = f"{sys.executable} -m fairlane serve --port 0"
    async with shell(serve, tmp_path, {}, lambda text: "curl " in text) as said:
        echo, curl = said.partition("try it:\n")[2].splitlines()
        async with shell(echo, tmp_path, {}, lambda text: "runs draw" in text):
            accepted = json.loads(await answer(curl, tmp_path))
            url = re.findall(r"http://127\.0\.0\.1:\d+", curl)[0]
            async with Caller(url, "none") as caller:
                caller.http.headers.pop("Authorization")
                job = await caller.ended(accepted["job_id"])
    assert (job["status"], job["total_steps"]) == ("completed", 2)
    assert [verdict["passed"] for verdict in job["quality"]] == [True]


@pytest.mark.embedded
async def test_the_echo_names_the_services_it_cannot_answer_for(tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text(
        '[services.far]\nurl = "http://far.example:9000"\n[services.near]\n'
    )
    echo = f"{sys.executable} -m fairlane echo --url http://127.0.0.1:9"
    async with shell(echo, tmp_path, {}, lambda text: "near" in text) as said:
        assert "cannot stand in for far: http://far.example:9000 is not a port of" in said
        assert "runs near for http://127.0.0.1:9" in said


@pytest.mark.embedded
async def test_a_service_with_an_address_elsewhere_is_not_offered_an_echo(tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text('[services.far]\nurl = "http://far.example:9000"\n')
    serve = f"{sys.executable} -m fairlane serve --port 0"
    async with shell(serve, tmp_path, {}, lambda text: "curl " in text) as said:
        assert "fairlane echo" not in said
        url = re.findall(r"http://127\.0\.0\.1:\d+", said)[0]
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"{url}/readyz")).status_code == 200
