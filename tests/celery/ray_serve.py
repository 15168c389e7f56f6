"""The bridge drives Ray Serve's task consumers, on a real Ray cluster of one machine:
`python3 dev.py celery ray`. Not collected by `make test`: Ray is in an environment of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import ray
import redis
from ray import serve

from fairlane.compose import embedded
from fairlane.dispatch import Dispatcher
from fairlane.model.catalog import Catalog
from fairlane.model.celery_bridge import CeleryBridge, CeleryTask
from fairlane.model.job import NewJob
from fairlane.model.service import Executor, Service
from fairlane.model.state import State
from fairlane.presets import tasks
from fairlane.servers import Redis
from tests.celery.ray_app import QUEUE, application

WITHIN_SECONDS = 120


@pytest.fixture
def broker() -> Iterator[str]:
    """Ray Serve with one replica of two places, on a broker of its own."""
    with Redis() as server:
        ray.init(logging_level="ERROR")  # at RAY_ADDRESS
        serve.run(application(server.url), name="pictures", route_prefix="/pictures")
        yield server.url
        serve.shutdown()
        ray.shutdown()


@pytest.mark.timeout(300)
async def test_ray_serve_runs_jobs_within_the_limit(broker: str, tmp_path: object) -> None:
    """I39: a task consumer of Ray Serve is a Celery worker with threads and late acks."""
    work = Service("render", executor=Executor.CELERY, limit=1, timeout=60, max_attempts=2)
    catalog = Catalog(tasks().tiers, [work])
    bridge = CeleryBridge(broker, broker, {"render": CeleryTask("render", QUEUE)})
    engine = await embedded(catalog, tmp_path / "ledger.db")  # type: ignore[operator]
    client = redis.Redis.from_url(broker, socket_timeout=None)
    async with engine, Dispatcher(engine, {}, celery=bridge):
        jobs = [
            (await engine.submit(NewJob("render", input={"name": name}, user=name))).job
            for name in "ab"
        ]
        for name, job in zip("ab", jobs, strict=True):
            assert await asyncio.to_thread(client.blpop, [f"started:{name}"], WITHIN_SECONDS)
            states = [(await engine.get(each)).state for each in jobs]
            assert states.count(State.RUNNING) == 1
            client.rpush(f"go:{name}", 1)
            async with asyncio.timeout(WITHIN_SECONDS):
                assert (await engine.wait(job)).state is State.COMPLETED
            _, context = await engine.payload(job)
            assert context["step_0_render"]["data"] == {"picture": f"{name}.png"}
            assert [each.number for each in await engine.attempts(job)] == [1]
    client.close()
