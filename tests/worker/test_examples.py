"""Workers in other languages need only the documented HTTP."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from fairlane.model.state import State
from tests.repo.checkout import ROOT
from tests.worker.scene import scene

pytestmark = pytest.mark.timeout(60)


@pytest.mark.embedded
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not on this machine")
async def test_the_worker_in_javascript_runs_tasks_and_leaves_when_told(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        process = await asyncio.create_subprocess_exec(
            "node",
            str(ROOT / "examples" / "worker.mjs"),
            env={**os.environ, "FAIRLANE_URL": at.served.url},
            stdout=PIPE,
        )
        assert process.stdout is not None
        try:
            assert b"runs greet" in await process.stdout.readline()
            jobs = [await at.world.submit("greet", input={"name": n}) for n in ("Ada", "Linus")]
            for job, name in zip(jobs, ("Ada", "Linus"), strict=True):
                assert (await at.ended(job)).state is State.COMPLETED
                assert await at.result(job) == {"text": f"Hello, {name}!"}
            process.send_signal(signal.SIGTERM)
            ending = asyncio.create_task(process.wait())
            while not ending.done():  # its polls wait on the queue's clock
                at.world.clock.advance(1_000_000)
                await asyncio.wait((ending,), timeout=0.01)
            assert ending.result() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
