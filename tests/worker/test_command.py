"""`fairlane worker` and `fairlane dead`, as people type them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from fairlane.model.state import State
from tests.worker.process import working
from tests.worker.scene import Scene, scene
from tests.world import catalog

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]


async def fairlane(at: Scene, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fairlane",
        *arguments,
        env={**os.environ, "FAIRLANE_URL": at.served.url, "FAIRLANE_KEY": "", "COLUMNS": "200"},
        stdout=PIPE,
        stderr=PIPE,
    )
    said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()
    return said.decode()


async def test_a_worker_is_run_by_its_name_and_drains_on_a_signal(tmp_path: Path) -> None:
    async with scene(tmp_path) as at, working("--url", at.served.url) as worker:
        job = await at.world.submit("sleep", input={"seconds": 0})
        assert (await at.ended(job)).state is State.COMPLETED
        assert await at.result(job) == {"pid": worker.pid}
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0


async def test_a_name_that_leads_nowhere_is_explained() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlane", "worker", "nowhere:worker", stdout=PIPE, stderr=PIPE
    )
    _, wrong = await process.communicate()
    assert process.returncode == 78
    assert b"write module:variable" in wrong


async def test_dead_letters_are_listed_shown_replayed_and_purged(tmp_path: Path) -> None:
    settings = catalog()
    async with scene(tmp_path, settings) as at:
        jobs = []
        for number in range(3):
            job = await at.world.submit(input=number, tier="low", user="ada", tags=("x",))
            for _ in range(3):
                await at.engine.fail(await at.world.claim_one(), message=f"broken {number}")
                await at.world.pass_time(60)
            jobs.append(job)
        assert {(await at.world.job(job)).state for job in jobs} == {State.DEAD}
        listed = await fairlane(at, "dead", "list")
        assert all(job in listed for job in jobs)
        assert "3 dead letters" in listed
        shown = await fairlane(at, "dead", "show", jobs[1])
        assert shown.count("broken 1") == 3
        assert "queued again" in await fairlane(at, "dead", "replay", jobs[0])
        assert "0 jobs are queued" in await fairlane(at, "dead", "replay", "--user", "linus")
        assert "2 jobs are queued" in await fairlane(at, "dead", "replay", "--tag", "x")
        assert "0 dead letters deleted" in await fairlane(at, "dead", "purge", "--yes")
        assert {(await at.world.job(job)).state for job in jobs} == {State.QUEUED}
