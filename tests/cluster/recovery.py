"""How soon work goes on that a killed process had in its hands, in real time.

    python -m tests.cluster.recovery

60 jobs of half a second, default settings. Three times a worker process is killed with -9 while it
works, and another one is started in its place."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import NamedTuple

from fairlane.clock import ManualClock, SystemClock
from fairlane.model.job import NewJob
from fairlane.servers import Postgres, Redis
from tests.cluster.fleet import (
    Fleet,
    Nursery,
    Process,
    all_over,
    comes_true,
    everything_ran_once,
)
from tests.world import catalog

AT_ONCE = 4
"""Jobs that one worker process runs."""


class Figures(NamedTuple):
    """Seconds from the death of a worker to the next start of each job it had."""

    jobs: int
    accepted_twice: int
    interrupted: int
    again_after: list[float]

    def __str__(self) -> str:
        ordered = sorted(self.again_after)
        half, most = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        return (
            f"{self.jobs} jobs, none missing, {self.accepted_twice} accepted twice; "
            f"{self.interrupted} interrupted, running again after "
            f"p50 {half:.1f} s, p99 {most:.1f} s, at most {ordered[-1]:.1f} s"
        )


async def recovery(
    fleet: Fleet, *, jobs: int = 60, lasts: float = 0.5, heartbeat: float = 5, deaths: int = 3
) -> Figures:
    """`heartbeat` is a third of the lease."""
    fleet.clock = ManualClock(SystemClock().now())
    world = await fleet.world()
    workers = await fleet.many(2 + deaths, real_time=True)
    await world.submit_all([NewJob("work", n) for n in range(jobs)])

    def starts(n: int) -> None:
        workers[n].tell("work", worker=f"w{n}", at_once=AT_ONCE, lasts=lasts, heartbeat=heartbeat)

    starts(0)
    starts(1)
    deadly: dict[str, float] = {}
    for n in range(deaths):
        victim = workers[n]
        await victim.until(lambda victim=victim: len(in_its_hands(victim)) == AT_ONCE)  # type: ignore[misc]
        await victim.kill()
        deadly.update(dict.fromkeys(in_its_hands(victim), time.monotonic()))
        starts(n + 2)

    await comes_true(lambda: all_over(world), within=120)
    found = await everything_ran_once(world)
    assert len(found) == jobs, "none is missing"
    results = Counter(job for each in workers for job, _, _ in each.heard("finished"))
    granted = [(job, at) for each in workers for job, _, at, _ in each.heard("granted")]
    again = {
        job: min((at for other, at in granted if other == job and at > died), default=0) - died
        for job, died in deadly.items()
    }
    finished_unheard = {job for job, after in again.items() if after < 0}
    return Figures(
        jobs=len(found),
        accepted_twice=sum(n > 1 for n in results.values()),
        interrupted=len(deadly) - len(finished_unheard),
        again_after=[after for job, after in again.items() if job not in finished_unheard],
    )


def in_its_hands(process: Process) -> set[str]:
    """Granted and not finished, as far as it has said."""
    granted = {job for job, *_ in process.heard("granted")}
    return granted - {job for job, *_ in process.heard("finished")}


async def main() -> None:
    with Nursery() as nursery, Postgres(fsync=True) as server, Redis() as redis:
        database = await server.new_database()
        async with Fleet(nursery, database, redis.url, catalog()) as fleet:
            print(await recovery(fleet))


if __name__ == "__main__":
    asyncio.run(main())
