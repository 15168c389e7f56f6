"""Worker processes of the SDK, both ways of talking: stopped beyond their leases, killed, and given
what kills them."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from fairlane.engine import Engine
from fairlane.model.attempt import Outcome
from fairlane.model.service import Fairness, Service
from fairlane.model.state import State
from fairlane.servers import Postgres, Redis
from fairlane.units import SECOND
from fairlane.worker_protocol.long_poll import FRESH_MICROSECONDS
from tests.cluster.fleet import comes_true
from tests.cluster.pulled import are_idle, scene
from tests.core import core_of
from tests.worker.scene import WAYS, Way
from tests.world import catalog

pytestmark = [pytest.mark.parametrize("way", WAYS), pytest.mark.timeout(180)]

SETTINGS = catalog(
    Service("sleep", fairness=Fairness.NONE),
    Service("poison", max_attempts=2),
    Service("block"),
)


async def test_a_worker_stopped_beyond_its_lease_is_refused_and_cuts_its_work(
    durable_server: Postgres, own_redis: Redis, way: Way
) -> None:
    """I3, I32: the stored result is the second worker's."""
    async with scene(durable_server, own_redis, SETTINGS) as at:
        stopped = await at.worker(way, HEARTBEAT=0.5)
        job = await at.submit("sleep", seconds=6)
        await stopped.until(lambda: job in stopped.heard("began"))
        stopped.signal(signal.SIGSTOP)
        second = await at.worker(way, HEARTBEAT=0.5)
        await second.until(lambda: job in second.heard("began"))
        stopped.signal(signal.SIGCONT)
        await stopped.until(lambda: job in stopped.heard("cut"))
        ended = await at.engine.wait(job)
        assert ended.state is State.COMPLETED
        _, context = await core_of(at.engine).ledger.payload(job)
        assert context["step_0_sleep"]["data"] == {"pid": second.pid}
        attempts = await at.engine.attempts(job)
        assert [each.outcome for each in attempts] == [Outcome.LOST, Outcome.COMPLETED]


async def test_a_task_that_blocks_its_event_loop_for_several_leases_runs_once(
    durable_server: Postgres, own_redis: Redis, way: Way, tmp_path: Path
) -> None:
    """I4: straight on the stores too, the engine of the worker is not on the loop of its tasks."""
    heartbeat, end = 0.5, tmp_path / "end"
    async with scene(durable_server, own_redis, SETTINGS) as at:
        worker = await at.worker(way, HEARTBEAT=heartbeat)
        job = await at.submit("block", file=str(end))
        await worker.until(lambda: job in worker.heard("began"))
        since = core_of(at.engine).now()

        async def leases_have_passed() -> bool:
            return core_of(at.engine).now() - since > 3 * 3 * heartbeat * SECOND

        await comes_true(leases_have_passed)
        end.touch()
        assert (await at.engine.wait(job)).state is State.COMPLETED
        assert [each.outcome for each in await at.engine.attempts(job)] == [Outcome.COMPLETED]


async def test_a_poison_task_ends_in_the_dead_letters_and_harms_nothing_else(
    durable_server: Postgres, own_redis: Redis, way: Way
) -> None:
    """I18: as many workers die as it has attempts."""
    async with scene(durable_server, own_redis, SETTINGS) as at:
        poison = await at.submit("poison")
        others = [await at.submit("sleep", seconds=0.05) for _ in range(20)]
        deaths = 0
        while (await at.engine.get(poison)).live:
            worker = await at.worker(way, HEARTBEAT=0.5, CAPACITY=1)
            watching = asyncio.create_task(at.engine.wait(poison))
            dying = asyncio.create_task(worker.ended())
            await asyncio.wait((watching, dying), return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, dying):
                task.cancel()
            await asyncio.gather(watching, dying, return_exceptions=True)
            deaths += poison in worker.heard("began")
        dead = await at.engine.get(poison)
        assert (dead.state, deaths) == (State.DEAD, 2)
        tried = await at.engine.attempts(poison)
        assert [each.outcome for each in tried] == [Outcome.LOST] * 2
        await at.worker(way)
        for job in others:
            assert (await at.engine.wait(job)).state is State.COMPLETED
        assert not any(await at.engine.check())


async def test_sixty_jobs_survive_three_killed_workers(
    durable_server: Postgres, own_redis: Redis, way: Way
) -> None:
    """I4: none missing, none accepted twice, all interrupted ones running again within the default
    lease and three seconds, of which the default back-off takes two."""
    heartbeat = 5
    async with scene(durable_server, own_redis, SETTINGS) as at:
        workers = [await at.worker(way, HEARTBEAT=heartbeat) for _ in range(2)]
        jobs = [await at.submit("sleep", seconds=0.5) for _ in range(60)]
        interrupted: dict[str, int] = {}
        for n in range(3):
            victim = workers[n]
            await victim.until(lambda victim=victim: len(victim.in_its_hands()) == 4)  # type: ignore[misc]
            victim.signal(signal.SIGKILL)
            await victim.ended()
            interrupted.update(dict.fromkeys(victim.in_its_hands(), core_of(at.engine).now()))
            workers.append(await at.worker(way, HEARTBEAT=heartbeat))
        for job in jobs:
            assert (await at.engine.wait(job)).state is State.COMPLETED
        ended = Counter(job for worker in workers for job in worker.heard("ended"))
        assert set(ended) <= set(jobs)
        waits: list[float] = []
        for job, died in interrupted.items():
            again = [each.started_at for each in await at.engine.attempts(job)][1:]
            waits += [(began - died) / SECOND for began in again]
        assert waits
        print(f"{way}: {len(waits)} interrupted, running again within {max(waits):.1f} s")
        assert max(waits) <= 3 * heartbeat + 3
        for job in jobs:
            outcomes = [each.outcome for each in await at.engine.attempts(job)]
            assert outcomes.count(Outcome.COMPLETED) == 1
        assert not any(await at.engine.check())


async def test_work_under_a_short_lease_goes_on_as_soon(
    durable_server: Postgres, own_redis: Redis, way: Way
) -> None:
    """I4: nobody waits until a killed process is missed, though its idle poll is the longest."""
    async with scene(durable_server, own_redis, SETTINGS) as at:
        victim = await at.worker(way, HEARTBEAT=1)
        job = await at.submit("sleep", seconds=3600)
        await victim.until(lambda: job in victim.heard("began"))
        await are_idle(at.engine, 1)
        await at.worker(way, HEARTBEAT=1)
        await are_idle(at.engine, 2)
        again = asyncio.create_task(started_again(at.engine, job))
        victim.signal(signal.SIGKILL)
        died = core_of(at.engine).now()
        took = (await again - died) / SECOND
        print(f"{way}: running again after {took:.1f} s, with a lease of 3 s")
        assert took <= 3 + 3


async def test_what_a_stopped_worker_swallows_goes_on_elsewhere_and_costs_no_attempt(
    durable_server: Postgres, own_redis: Redis, way: Way
) -> None:
    """I18, I32: two tasks, two idle workers: one of them is handed to the one that stands still."""
    async with scene(durable_server, own_redis, SETTINGS) as at:
        workers = [await at.worker(way) for _ in range(2)]
        await are_idle(at.engine, 2)
        stopped, second = workers
        stopped.signal(signal.SIGSTOP)
        since = core_of(at.engine).now()

        async def has_waited() -> bool:
            return core_of(at.engine).now() - since > FRESH_MICROSECONDS

        await comes_true(has_waited)
        jobs = [await at.submit("sleep", seconds=0) for _ in range(2)]
        for job in jobs:
            ended = await at.engine.wait(job)
            assert (ended.state, ended.attempt) == (State.COMPLETED, 1)
            outcomes = {each.outcome for each in await at.engine.attempts(job)}
            assert outcomes <= {Outcome.RELEASED, Outcome.COMPLETED}
        assert set(jobs) <= set(second.heard("ended"))
        stopped.signal(signal.SIGCONT)
        later = await at.submit("sleep", seconds=0)
        assert (await at.engine.wait(later)).state is State.COMPLETED
        assert not any(await at.engine.check())


async def started_again(engine: Engine, job: str) -> int:
    """When it began to run under another lease than the one that was lost; by the ledger, which is
    looked at once a second."""
    with core_of(engine).subscriptions.listening(job) as wakeup:
        while True:
            found = await engine.get(job)
            if not found.live or (found.fence > 1 and found.state is State.RUNNING):
                assert found.started_at
                return found.started_at
            await wakeup.wait()
            wakeup.clear()
