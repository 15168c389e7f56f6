"""Retries in the hands of the caller and the worker: how often, after which pauses, how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import Worker
from fairlane.errors import InvalidInput
from fairlane.model.job import Job
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.step import RetryTerms, Step
from fairlane.model.worker import WorkerState
from fairlane.units import SECOND
from fairlane.worker_protocol import WorkerService
from fairlane.worker_protocol.messages import Offer
from tests.worker.scene import WAYS, Scene, Way, scene
from tests.world import World, catalog

pytestmark = pytest.mark.timeout(60)

CONFIGURED = catalog(Service("draw", max_attempts=4, backoff=(7.0,), timeout=70))


WRONG: tuple[dict[str, object], ...] = (
    {"max_retries": -1},
    {"max_retries": 101},
    {"max_retries": 1.5},
    {"backoff": []},
    {"backoff": [-1]},
    {"backoff": [86_401]},
    {"backoff": [1] * 21},
    {"backoff": 5},
)


def failing(**terms: object) -> Worker:
    worker = Worker()

    @worker.task("draw", **terms)  # type: ignore[arg-type]
    async def draw() -> None:
        raise RuntimeError("out of paint")

    return worker


async def failed_once(at: Scene, job: str) -> Job:
    return await at.until(job, lambda job: job.attempt == 1 and job.token is None)


def pause(at: Scene, job: Job) -> float:
    """Seconds until the next try, which may be shortened by a fifth."""
    return (job.ready_at - at.world.clock.now()) / SECOND


@pytest.mark.parametrize("way", WAYS)
async def test_the_caller_goes_before_the_worker_and_the_worker_before_the_settings(
    tmp_path: Path, way: Way
) -> None:
    """I18: one rule for retries, pauses and timeouts."""
    worker = failing(max_retries=1, backoff=[30, 40], timeout=60)
    async with scene(tmp_path, CONFIGURED) as at:
        before = await at.world.job(await at.world.submit("draw"))
        assert before.current[3:8] == (70 * SECOND, 4, 0, (), False), "the settings"
        async with at.working(worker, way):
            await failed_once(at, before.id)
            declared = await at.world.submit("draw")
            found = await failed_once(at, declared)
            assert found.current[3:8] == (60 * SECOND, 2, 0, (30 * SECOND, 40 * SECOND), True)
            assert 24 <= pause(at, found) <= 30
            asked = await at.world.submit(
                "draw", max_retries=0, backoff=(2 * SECOND,), timeout=90 * SECOND
            )
            found = await at.ended(asked)
            assert found.current[3:8] == (90 * SECOND, 1, 0, (2 * SECOND,), True)
            assert (found.state, found.attempt) == (State.DEAD, 1)
            patient = await at.world.submit("draw", backoff=(300 * SECOND,), max_retries=5)
            assert 240 <= pause(at, await failed_once(at, patient)) <= 300
            await at.world.pass_time(30)
            assert (await at.ended(declared)).state is State.DEAD


async def test_the_terms_of_a_job_are_frozen_when_it_is_submitted(tmp_path: Path) -> None:
    """I20: neither a worker that registers later nor one that is gone changes them."""
    async with World(CONFIGURED, tmp_path / "ledger.db") as world:
        worker_service, terms = WorkerService(world.engine), RetryTerms(2, (SECOND,), 5 * SECOND)
        early = await world.submit("draw")
        await worker_service.register(Offer(tasks={"draw": RetryTerms(9)}), "k")
        worker = await worker_service.register(Offer(tasks={"draw": terms}), "k")
        job = await world.submit("draw")
        assert (await world.job(early)).current.max_attempts == 4
        assert (await world.job(job)).current[3:8] == (5 * SECOND, 3, 0, (SECOND,), True)
        await worker_service.heartbeat(worker, WorkerState.DEAD, ())
        later = await world.submit("draw")
        assert (await world.job(later)).current.max_attempts == 3, "for a day the last one counts"
        await worker_service.register(Offer(tasks={"draw": RetryTerms(0)}), "k")
        assert (await world.job(job)).current.max_attempts == 3
        assert (await world.job(await world.submit("draw"))).current.max_attempts == 1


async def test_the_wire_takes_terms_and_shows_them(tmp_path: Path) -> None:
    terms = {"max_retries": 0, "backoff": [0.5, 60], "timeout_seconds": 12}
    async with scene(tmp_path) as at, at.served.client() as client:
        task = (await client.post("/api/v1/tasks", json={"task_type": "draw", **terms})).json()
        shown = (await client.get(f"/api/v1/tasks/{task['task_id']}")).json()
        assert (shown["max_retries"], shown["timeout_seconds"]) == (0, 12)
        job = (await client.post("/api/v1/jobs", json={"service": "draw", **terms})).json()
        found = await at.world.job(job["job_id"])
        assert found.current.backoff == (SECOND // 2, 60 * SECOND)
        for wrong in WRONG:
            for route, name in (("jobs", "service"), ("tasks", "task_type")):
                answer = await client.post(f"/api/v1/{route}", json={name: "draw", **wrong})
                assert answer.status_code == 422, wrong
                assert next(iter(wrong)) in answer.text


async def test_terms_that_cannot_be_meant_are_refused_where_they_are_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidInput, match="max_retries is 0 to 100, not -1"):
        failing(max_retries=-1)
    with pytest.raises(InvalidInput, match="a pause of a backoff"):
        failing(backoff=-1)
    async with World(CONFIGURED, tmp_path / "ledger.db") as world:
        with pytest.raises(InvalidInput, match="at most 20 pauses"):
            await world.submit("draw", backoff=(1,) * 21)


def test_a_step_that_an_older_version_has_written_is_read() -> None:
    step = Step("draw", CONFIGURED.service("draw").executor, "draw||", 5, 3, 0)
    assert len(step.as_list()) == 6
    assert Step.from_list(step.as_list()) == step
    own = step._replace(backoff=(1, 2), timeout_given=True)
    assert Step.from_list(own.as_list()) == own
