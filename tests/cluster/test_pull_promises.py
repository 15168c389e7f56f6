"""What a crowd of callers relies on, kept with worker processes of the SDK, both ways of talking:
limits, cancels, and that nobody waits forever."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from fairlane.clock import seconds
from fairlane.model.attempt import Outcome
from fairlane.model.service import Fairness, Overrun, Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.servers import Postgres, Redis
from tests.cluster.pulled import Scene, scene
from tests.worker.scene import WAYS, Way
from tests.world import catalog

pytestmark = [pytest.mark.parametrize("way", WAYS), pytest.mark.timeout(180)]

AGES = 3600
TIMEOUT, PATIENCE = 5, 1


def limited(name: str, limit: int) -> Service:
    return Service(
        name,
        limit=limit,
        overrun=Overrun.STRICT,
        timeout=TIMEOUT,
        max_attempts=1,
        fairness=Fairness.NONE,
    )


SLOTS = {"alone": 1, "four": 4}
LIMITED = catalog(*(limited(name, n) for name, n in SLOTS.items()))
PATIENT = catalog(
    Service("sleep", fairness=Fairness.NONE),
    tiers=Tiers([Tier("high"), Tier("low", {"high": PATIENCE})]),
)


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
async def test_calls_that_may_still_be_going_on_are_never_more_than_the_limit(
    durable_server: Postgres, own_redis: Redis, way: Way, how: signal.Signals
) -> None:
    """I8: the slots of a worker that vanished stay taken for as long as its calls may last, far
    longer than its lease."""
    async with scene(durable_server, own_redis, LIMITED) as at:
        vanishing = await at.worker(way, HEARTBEAT=0.5, CAPACITY=5)
        caught = {name: await submitted(at, name, n, AGES) for name, n in SLOTS.items()}
        jobs = {job for some in caught.values() for job in some}
        await vanishing.until(lambda: jobs <= set(vanishing.heard("began")))
        waiting = {name: await submitted(at, name, 2 * n, 0) for name, n in SLOTS.items()}
        await at.worker(way, HEARTBEAT=0.5, CAPACITY=10)
        vanishing.signal(how)
        for name in SLOTS:
            for job in waiting[name]:
                assert (await at.engine.wait(job)).state is State.COMPLETED
            lost = [(await at.engine.attempts(job))[0] for job in caught[name]]
            assert {each.outcome for each in lost} == {Outcome.LOST}
            assert all(each.ended_at < each.started_at + seconds(TIMEOUT) for each in lost)
            free = sorted(each.started_at + seconds(TIMEOUT) for each in lost)
            begun = [(await at.engine.attempts(job))[0].started_at for job in waiting[name]]
            assert min(begun) >= free[0], "a call began while all slots were taken"
        if how is signal.SIGSTOP:
            vanishing.signal(signal.SIGCONT)
            await vanishing.until(lambda: not vanishing.in_its_hands())
        assert not set(vanishing.heard("ended")) & jobs
        assert not any(await at.engine.check())


async def submitted(at: Scene, name: str, n: int, seconds: float) -> list[str]:
    return [await at.submit(name, seconds=seconds) for _ in range(n)]


async def test_a_cancelled_task_is_cut_within_a_heartbeat(
    durable_server: Postgres, own_redis: Redis, way: Way
) -> None:
    """I22: and no result of it is taken."""
    heartbeat = 5
    async with scene(durable_server, own_redis, catalog(Service("sleep"))) as at:
        worker = await at.worker(way, HEARTBEAT=heartbeat)
        job = await at.submit("sleep", seconds=AGES)
        await worker.until(lambda: job in worker.heard("began"))
        await at.engine.cancel(job)
        cancelled = time.monotonic()
        await worker.until(lambda: job in worker.heard("cut"))
        took = time.monotonic() - cancelled
        print(f"{way}: cut {took:.2f} s after the cancel")
        assert took <= heartbeat + 1
        assert (await at.engine.get(job)).state is State.CANCELLED
        again = await at.submit("sleep", seconds=0)
        assert (await at.engine.wait(again)).state is State.COMPLETED
        assert not any(await at.engine.check())


async def test_a_low_task_starts_in_its_turn_though_better_ones_never_end(
    durable_server: Postgres, own_redis: Redis, way: Way
) -> None:
    """I17: once its patience is over, nothing that came after it starts before it, but for what
    the worker was being given at that moment."""
    capacity = 2
    async with scene(durable_server, own_redis, PATIENT) as at:
        flood = [await at.submit("sleep", "high", seconds=0.01) for _ in range(20)]
        low = await at.submit("sleep", "low", seconds=0)
        await at.worker(way, CAPACITY=capacity)
        over = asyncio.create_task(at.engine.wait(low))
        while not over.done():
            reached = len(flood) // 2
            flood += [await at.submit("sleep", "high", seconds=0.01) for _ in range(20)]
            await at.engine.wait(flood[reached])
        mine = await over
        (run,) = await at.engine.attempts(low)
        later = [await at.engine.get(job) for job in flood]
        begun = [job for job in later if job.started_at is not None]
        due = mine.created_at + seconds(PATIENCE)
        between = [
            job
            for job in begun
            if job.created_at > mine.created_at and due < (job.started_at or 0) < run.started_at
        ]
        assert mine.state is State.COMPLETED
        assert run.started_at >= due
        assert len(begun) < len(later) or any((j.started_at or 0) > run.started_at for j in begun)
        assert len(between) <= capacity
