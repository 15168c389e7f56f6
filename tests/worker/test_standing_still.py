"""Workers in processes of their own: blocked by their tasks, stopped and continued, told to end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.worker import WorkerState
from fairlane.worker.elapsed import Moment
from tests.cluster.fleet import comes_true
from tests.core import core_of
from tests.worker.process import working
from tests.worker.scene import Scene, scene
from tests.world import catalog

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(60)]

HEARTBEAT_SECONDS = 0.5
LEASE_SECONDS = 3 * HEARTBEAT_SECONDS


async def renewed(at: Scene, job: str, state: WorkerState = WorkerState.ACTIVE) -> None:
    """Returns when the one worker was heard of at the present time, and its lease is renewed: a
    heartbeat is recorded first."""

    async def now() -> bool:
        ((worker, heard),) = await core_of(at.engine).ledger.workers()
        until = (await at.world.job(job)).lease_until or 0
        at_present = heard == at.world.clock.now() and until >= heard + worker.lease
        return at_present and worker.state is state

    await comes_true(now)


async def idle(at: Scene) -> None:
    async def polls() -> bool:
        return (await core_of(at.engine).index.stats()).idle == 1

    await comes_true(polls)


def logged(file: Path) -> list[str]:
    """What the worker has logged so far."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line)["message"] for line in lines]


async def test_a_task_that_blocks_its_event_loop_keeps_its_lease(tmp_path: Path) -> None:
    """I4: heartbeats come from another thread, SIGTERM is heard, and the log names the function."""
    log, end = tmp_path / "log", tmp_path / "end"

    async def named() -> bool:
        return any("task function block (block, at app.py:" in line for line in logged(log))

    async with (
        scene(tmp_path, catalog(Service("block"))) as at,
        working("--url", at.served.url, HEARTBEAT=HEARTBEAT_SECONDS, LOG=log) as worker,
    ):
        job = await at.world.submit("block", input={"file": str(end)})
        await worker.until(lambda: job in worker.heard("began"))
        for _ in range(4):
            await at.world.pass_time(2 * HEARTBEAT_SECONDS)
            await renewed(at, job)
        await comes_true(named)
        worker.signal(signal.SIGTERM)
        await at.world.pass_time(2 * HEARTBEAT_SECONDS)
        await renewed(at, job, WorkerState.DRAINING)
        end.touch()
        assert await worker.ended() == 0
        found = await at.world.job(job)
        assert (found.state, found.attempt) == (State.COMPLETED, 1)
        assert len(await at.engine.attempts(job)) == 1


async def test_a_worker_that_stood_still_does_not_begin_what_another_has_done(
    tmp_path: Path,
) -> None:
    """I32: its poll was answered while it was stopped, and its kernel has kept the answer."""
    async with (
        scene(tmp_path, catalog(Service("sleep"))) as at,
        working("--url", at.served.url, HEARTBEAT=HEARTBEAT_SECONDS) as worker,
    ):
        await idle(at)
        asked = Moment.now()  # its poll began before
        worker.signal(signal.SIGSTOP)
        job = await at.world.submit("sleep", input={"seconds": 0})
        await at.until(job, lambda job: job.state is State.RUNNING)
        await at.world.pass_time(2 * LEASE_SECONDS)
        await at.world.pass_time(60)
        await at.engine.complete(await at.world.claim_one(), "done by another")

        async def lease_is_over() -> bool:
            return asked.age() > LEASE_SECONDS

        await comes_true(lease_is_over)
        worker.signal(signal.SIGCONT)
        later = await at.run("sleep", {"seconds": 0})
        assert later.state is State.COMPLETED
        assert worker.heard("began") == [later.id]
        assert await at.result(job) == "done by another"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_has_not_registered_can_be_stopped(
    tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "log"

    async def tries() -> bool:
        return any("cannot register" in line for line in logged(log))

    async with working("--url", "http://127.0.0.1:9", LOG=log) as worker:
        await comes_true(tries)
        worker.signal(number)
        assert await worker.ended() == 0


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8000", "http://", "http://host:port", "htp://host", "http://a b", "http://h?a"],
)
async def test_a_malformed_address_ends_the_worker_with_a_hint(tmp_path: Path, url: str) -> None:
    log = tmp_path / "log"
    async with working("--url", url, LOG=log) as worker:
        assert await worker.ended() == 1
        assert "is not the address of a Fairlane server; write it like http" in log.read_text()
