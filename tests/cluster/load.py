"""Load in real time: one process submits, two work, all of them sweep."""

from __future__ import annotations

import asyncio

from fairlane.clock import ManualClock, SystemClock
from fairlane.model.state import State
from tests.cluster.fleet import Fleet, Process, all_over, comes_true, everything_ran_once
from tests.core import core_of
from tests.world import World


class Load:
    """One process submits, two work, all of them sweep."""

    def __init__(self, fleet: Fleet, submitter: Process, workers: list[Process]) -> None:
        self.fleet, self.submitter, self.workers = fleet, submitter, workers

    @property
    def accepted(self) -> list[str]:
        return [job for job, _ in self.submitter.heard("accepted")]

    @property
    def finished(self) -> list[str]:
        return [job for each in self.workers for job, _, _ in each.heard("finished")]

    async def goes_on(self) -> None:
        """Something new is accepted, and something new is finished."""
        accepted, finished = len(self.accepted), len(self.finished)
        await self.submitter.until(lambda: len(self.accepted) > accepted + 5)
        await asyncio.gather(
            *(each.until(lambda: len(self.finished) > finished + 5) for each in self.workers)
        )

    async def ends_well(self) -> None:
        """No more submits; everything that was accepted has run, once."""
        await self.submitter.kill()
        accepted = self.accepted
        world = await self.fleet.world()
        await self._drains(world)
        jobs = {job.id: job for job in await everything_ran_once(world)}
        assert set(accepted) <= set(jobs)
        assert {job.state for job in jobs.values()} == {State.COMPLETED}
        for worker in self.workers:
            await worker.kill()
        finished = self.finished
        assert len(finished) == len(set(finished)), "no result was accepted twice"
        assert len(await core_of(world.engine).ledger.slots()) == 0

    async def _drains(self, world: World) -> None:
        """Returns when nothing waits or runs. How long that takes depends on the machine; that
        nothing gets done for long is an error."""
        while not await all_over(world):
            before = len(self.finished)

            async def got_something_done(before: int = before) -> bool:
                return len(self.finished) > before or await all_over(world)

            await comes_true(got_something_done)


async def under_load(fleet: Fleet, limit: int) -> Load:
    """Returns when everybody has got something done."""
    fleet.clock = ManualClock(SystemClock().now())
    submitter, *workers = await fleet.many(3, real_time=True)
    for n, worker in enumerate(workers):
        worker.tell("work", worker=f"w{n}", at_once=limit, lasts=0.01, heartbeat=1)
    submitter.keep_submitting(at_once=1)
    load = Load(fleet, submitter, workers)
    await load.goes_on()
    return load
