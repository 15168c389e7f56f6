"""The Celery bridge: jobs that wait in Fairlane and run as tasks of real Celery workers."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlane.dispatch.celery_call import LOST_AFTER_MISSES, task_id
from fairlane.dispatch.celery_fleet import Answers, CeleryFleet
from fairlane.model.state import Code, State
from fairlane.model.worker import Worker
from fairlane.servers import Redis
from tests.celery.bridge import Bridge, bridged
from tests.celery.site import Site

TRACKED = {"conf": {"task_track_started": True, "worker_prefetch_multiplier": 1}}
LATE = {"conf": {**TRACKED["conf"], "broker_transport_options": {"visibility_timeout": 1}}}
tracked = pytest.mark.parametrize("site", [TRACKED], indirect=True)
pools = pytest.mark.parametrize("pool", ["prefork", "threads"])


async def progress_of(bridge: Bridge, job: str) -> Any:
    return (await bridge.engine.get(job)).progress


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pools
@tracked
async def test_a_job_is_run_by_the_fleet_and_its_result_comes_back(site: Site, pool: str) -> None:
    with site.worker("-P", pool, "-c", "2"):
        async with bridged(site, "add") as bridge:
            named = await bridge.submit({"a": 1, "b": 2})
            listed = await bridge.submit([3, 4])
            assert (await bridge.result(named), await bridge.result(listed)) == (3, 7)
            (attempt,) = await bridge.attempts(named)
            assert (attempt.number, attempt.outcome) == (1, "completed")


@pytest.mark.long
@tracked
async def test_an_exception_costs_attempts_and_an_unknown_task_fails_at_once(site: Site) -> None:
    with site.worker("-P", "threads", "-c", "2"):
        async with bridged(site, "fail", max_attempts=2) as bridge:
            job = await bridge.ended(await bridge.submit())
            assert (job.state, len(await bridge.attempts(job.id))) == (State.DEAD, 2)
            assert job.error is not None
            assert "ValueError: as asked" in job.error.message
        (site.folder / "ledger.db").unlink()
        async with bridged(site, "no_such_task") as bridge:
            job = await bridge.ended(await bridge.submit())
            assert job.error is not None
            assert (job.error.code, job.attempt) == (Code.SERVICE_ERROR, 1)
            assert "tests.celery.app.no_such_task" in job.error.message


@pytest.mark.long
@tracked
async def test_a_task_reports_progress_and_knows_its_job(site: Site) -> None:
    with site.worker("-P", "threads", "-c", "2"):
        async with bridged(site, "report") as bridge:
            job = await bridge.submit({"name": "p"})
            await bridge.started("p")
            await bridge.until(lambda: progress_of(bridge, job))
            said = await progress_of(bridge, job)
            assert (said.percent, said.text) == (40, "halfway")
            site.let_go("p")
            assert await bridge.result(job) == {"job": job, "context": {}}


@pytest.mark.long
@pytest.mark.parametrize("site", [LATE], indirect=True)
async def test_a_task_that_is_delivered_again_is_one_attempt(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """I39: with a visibility timeout shorter than the task, Celery runs the same message twice. It
    is one attempt with one result, and the other run is revoked."""
    with site.worker("-P", "prefork", "-c", "1"):
        async with bridged(site, "hold_late", limit=1) as bridge:
            job = await bridge.submit({"name": "d"})
            first = await bridge.started("d")
            await bridge.until(lambda: _is_due(site))
            async with bridge.worker("-P", "prefork", "-c", "1", name="w2"):
                second = await bridge.started("d")
                assert second != first
                await bridge.until(lambda: "delivered again by Celery" in caplog.text)
                site.let_go("d")
                assert (await bridge.ended(job)).state is State.COMPLETED
                await bridge.until(lambda: is_gone(first) or is_gone(second))
                (attempt,) = await bridge.attempts(job)
                assert (attempt.number, attempt.fence) == (1, 1)
                after = await bridge.submit({"name": "after"})  # the only slot is free again
                await bridge.started("after")
                site.let_go("after")
                assert (await bridge.ended(after)).state is State.COMPLETED


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Answers]:
    """The answers to all broadcasts."""
    found: list[Answers] = []
    ask = CeleryFleet.ask

    async def noted(fleet: CeleryFleet, task_ids: Sequence[str]) -> Answers:
        answers = await ask(fleet, task_ids)
        found.append(answers)
        return answers

    monkeypatch.setattr(CeleryFleet, "ask", noted)
    return found


@pytest.mark.long
@tracked
async def test_a_revoked_copy_proves_nothing_while_the_worker_of_the_task_is_silent(
    site: Site, asked: list[Answers]
) -> None:
    """I39: a worker that gets an expired copy stores REVOKED over STARTED. A solo worker answers
    only between its tasks, so its silence does not mean that it has dropped the first one."""
    with site.worker("-P", "solo"):
        async with bridged(site, "hold", limit=1) as bridge:
            job = await bridge.submit({"name": "s"})
            await bridge.started("s")
            stored = f"celery-task-meta-{task_id(job, 1)}"
            await bridge.until(lambda: len(asked) > 1)  # STARTED has been read
            site.client.set(stored, json.dumps({"status": "REVOKED", "result": None}))
            before = len(asked)
            await bridge.until(lambda: len(asked) > before + 4)
            assert (await bridge.engine.get(job)).fence == 1
            site.let_go("s")
            assert await bridge.result(job) == "s"
            assert len(await bridge.attempts(job)) == 1


@pytest.mark.long
async def test_a_cancelled_task_of_a_silent_worker_keeps_its_slot(
    site: Site, asked: list[Answers]
) -> None:
    """I39: the task has told its progress and not its worker, so no answer proves that it ended."""
    with site.worker("-P", "solo"):
        async with bridged(site, "report", limit=1) as bridge:
            job = await bridge.submit({"name": "q"})
            await bridge.started("q")
            await bridge.until(lambda: progress_of(bridge, job))
            await bridge.engine.cancel(job)
            before = len(asked)
            await bridge.until(lambda: len(asked) > before + 3)
            after = await bridge.submit({"name": "after"})
            assert await bridge.engine.claim(Worker("w"), 1) == []
            assert (await bridge.engine.get(after)).state is State.QUEUED
            site.let_go("q")
            await bridge.started("after")
            site.let_go("after")
            assert (await bridge.ended(after)).state is State.COMPLETED


def _is_due(site: Site) -> bool:
    """Whether the visibility timeout of a second is over."""
    seconds, _ = site.client.time()
    return bool(site.client.zrangebyscore("unacked_index", 0, seconds - 2))


@tracked
async def test_a_pickled_result_is_refused_and_not_unpickled(site: Site) -> None:
    """I39: only JSON is read."""
    async with bridged(site, "hold") as bridge:
        job = await bridge.submit({"name": "x"})
        await bridge.until(lambda: site.client.llen("celery"))
        forged = pickle.dumps({"status": "SUCCESS", "result": _Trap(site.folder / "trap")})
        site.client.set(f"celery-task-meta-{task_id(job, 1)}", forged)
        ended = await bridge.ended(job)
        assert ended.error is not None
        assert 'result_serializer = "json"' in ended.error.message
        assert not (site.folder / "trap").exists()


class _Trap:
    """Unpickling it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._folder),)


@pytest.mark.long
@tracked
async def test_a_task_that_no_worker_starts_is_given_up_and_never_starts(site: Site) -> None:
    async with bridged(site, "hold", start_timeout=0.5, max_attempts=1) as bridge:
        job = await bridge.ended(await bridge.submit({"name": "n"}))
        assert job.error is not None
        assert "no Celery worker has started it within 0.5 s" in job.error.message
    with site.worker("-P", "threads", "-c", "1"):
        async with bridged(site, "add") as bridge:
            assert await bridge.result(await bridge.submit([1, 1])) == 2
            assert not site.client.exists("started:n")


@pytest.mark.long
@tracked
async def test_a_cancelled_job_terminates_its_task_and_frees_its_slot(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fairlane")
    with site.worker("-P", "prefork", "-c", "1"):
        async with bridged(site, "hold", limit=1) as bridge:
            await bridge.until(lambda: "Celery workers: w1@test" in caplog.text)
            job = await bridge.submit({"name": "c"})
            child = await bridge.started("c")
            await bridge.engine.cancel(job)
            await bridge.until(lambda: is_gone(child))
            after = await bridge.submit({"name": "d"})
            await bridge.started("d")
            site.let_go("d")
            assert await bridge.result(after) == "d"


@pytest.mark.long
@tracked
async def test_time_counts_from_the_start_in_the_worker(site: Site) -> None:
    """The fleet runs one task at a time, so the second waits in the broker, longer than its time
    limit. That wait costs it nothing."""
    with site.worker("-P", "threads", "-c", "1"):
        async with bridged(site, "hold", timeout=2, lease=2) as bridge:
            async with taken(bridge, site):
                job = await bridge.submit({"name": "b"})
                await bridge.until(lambda: _running(bridge, job))
                claimed = (await bridge.engine.get(job)).started_at or 0
                await bridge.until(lambda: _moved(bridge, job, claimed + 2_500_000))
            await bridge.started("b")
            site.let_go("b")
            assert await bridge.result(job) == "b"
            (attempt,) = await bridge.attempts(job)
            assert attempt.started_at > claimed + 2_500_000


@asynccontextmanager
async def taken(bridge: Bridge, site: Site) -> AsyncIterator[None]:
    """The only place of the fleet runs a task of another program."""
    site.tasks.hold.apply_async(("other",), queue="celery")
    await bridge.started("other")
    yield
    site.let_go("other")


async def _running(bridge: Bridge, job: str) -> bool:
    return (await bridge.engine.get(job)).state is State.RUNNING


async def _moved(bridge: Bridge, job: str, at: int) -> bool:
    found = await bridge.engine.get(job)
    assert found.state is State.RUNNING
    return (found.started_at or 0) >= at


@pytest.mark.long
@tracked
async def test_a_time_limit_ends_the_task_in_its_worker(site: Site) -> None:
    with site.worker("-P", "prefork", "-c", "1"):
        async with bridged(site, "hold", limit=1, timeout=1, max_attempts=1) as bridge:
            job = await bridge.submit({"name": "t"})
            child = await bridge.started("t")
            assert (await bridge.ended(job)).state is State.DEAD
            await bridge.until(lambda: is_gone(child))


@pytest.mark.long
@pools
@tracked
async def test_the_task_of_a_killed_worker_is_retried(
    site: Site, pool: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fairlane")
    with (
        site.worker("-P", pool, "-c", "1") as killed,
        site.worker("-P", pool, "-c", "1", name="w2"),
    ):
        async with bridged(site, "hold", limit=2) as bridge:
            await bridge.until(lambda: "Celery workers: w1@test, w2@test" in caplog.text)
            jobs = [await bridge.submit({"name": name}) for name in "ab"]
            await bridge.started("a")
            await bridge.started("b")
            killed.kill()
            for name in "ab":
                site.let_go(name)
            await bridge.until(lambda: _again(bridge, jobs))
            for name in "ab":
                site.let_go(name)
            ends = [await bridge.ended(job) for job in jobs]
            assert {job.state for job in ends} == {State.COMPLETED}
            assert sorted(job.fence for job in ends) == [1, 2]


async def _again(bridge: Bridge, jobs: list[str]) -> bool:
    found = await bridge.engine.jobs(jobs)
    return max(job.fence for job in found.values()) == 2


@pytest.mark.long
@tracked
async def test_a_task_that_waits_for_a_retry_of_celery_is_not_lost(
    site: Site, asked: list[Answers]
) -> None:
    """I39: the retry is the same attempt. It is in the broker, so that no worker holds it, also not
    the one that has started it."""
    with site.worker("-P", "threads", "-c", "1"):
        async with bridged(site, "retry_in") as bridge:
            job = await bridge.submit({"name": "w", "queue": "elsewhere"})
            await bridge.until(lambda: any(held for each in asked for held in each.values()))
            site.let_go("w")
            await bridge.until(lambda: site.client.llen("elsewhere"))
            before = len(asked)
            await bridge.until(lambda: len(asked) > before + LOST_AFTER_MISSES + 1)
            assert (await bridge.engine.get(job)).fence == 1
            site.client.rename("elsewhere", "celery")
            assert await bridge.result(job) == "w"
            assert len(await bridge.attempts(job)) == 1


@pytest.mark.long
@tracked
async def test_a_retry_of_celery_that_comes_too_late_costs_an_attempt(site: Site) -> None:
    with site.worker("-P", "threads", "-c", "1"):
        async with bridged(site, "retry_in", start_timeout=8, max_attempts=1) as bridge:
            job = await bridge.submit({"name": "l", "queue": "elsewhere"})
            site.let_go("l")
            await bridge.until(lambda: site.client.llen("elsewhere"))
            expires_at = bridge.engine.clock.now() + 8_000_000
            await bridge.until(lambda: bridge.engine.clock.now() > expires_at)
            site.client.rename("elsewhere", "celery")
            ended = await bridge.ended(job)
            assert ended.error is not None
            assert "Celery dropped its own retry" in ended.error.message


@pytest.mark.long
@tracked
async def test_the_task_of_a_killed_child_is_retried(site: Site) -> None:
    with site.worker("-P", "prefork", "-c", "1"):
        async with bridged(site, "hold", limit=1) as bridge:
            job = await bridge.submit({"name": "k"})
            os.kill(await bridge.started("k"), signal.SIGKILL)
            await bridge.started("k")
            site.let_go("k")
            assert await bridge.result(job) == "k"
            assert [each.number for each in await bridge.attempts(job)] == [1, 2]


@pytest.mark.long
async def test_a_fleet_that_does_not_track_starts_works_all_the_same(site: Site) -> None:
    with site.worker("-P", "threads", "-c", "1"):
        async with bridged(site, "hold", start_timeout=4, lease=2) as bridge:
            job = await bridge.submit({"name": "u"})
            await bridge.started("u")
            given_up = (await bridge.engine.get(job)).started_at or 0
            await bridge.until(lambda: bridge.engine.clock.now() > given_up + 5_000_000)
            site.let_go("u")
            assert await bridge.result(job) == "u"
            assert len(await bridge.attempts(job)) == 1


@pytest.mark.long
@pytest.mark.parametrize("site", [TRACKED], indirect=True)
async def test_a_result_backend_that_is_away_costs_only_time(site: Site) -> None:
    with Redis(appendonly=True) as backend:
        site.environment["FAIRLANE_TEST_CELERY_BACKEND"] = backend.url
        with site.worker("-P", "threads", "-c", "1"):
            async with bridged(site, "hold", result_backend=backend.url) as bridge:
                job = await bridge.submit({"name": "r"})
                await bridge.started("r")
                backend.restart()
                site.let_go("r")
                assert await bridge.result(job) == "r"
                assert len(await bridge.attempts(job)) == 1


@pytest.mark.long
@pytest.mark.parametrize("site", [{**TRACKED, "durable": True}], indirect=True)
async def test_a_broker_that_is_restarted_loses_no_job(site: Site) -> None:
    with site.worker("-P", "threads", "-c", "1"):
        async with bridged(site, "hold_file", limit=1) as bridge:
            job = await bridge.submit({"name": str(site.folder / "f")})
            await bridge.until(Path(site.folder / "f.started").exists)
            site.server.restart()
            await asyncio.to_thread(Path(site.folder / "f.go").touch)
            assert (await bridge.ended(job)).state is State.COMPLETED


@pytest.mark.long
@tracked
async def test_settings_of_workers_that_do_not_fit_are_warned_of(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with site.worker("-P", "threads", "-c", "2", "--prefetch-multiplier", "4"):
        async with bridged(site, "hold", limit=5) as bridge:
            await bridge.until(lambda: "prefetches 8 tasks for 2 places" in caplog.text)
            assert "its limit is 5, and its Celery workers run 2 tasks at once" in caplog.text
