"""What several tests do: run what waits, read a life's events, count what is held."""

from __future__ import annotations

from collections import Counter

from fairlane.ledger.messages import Filter
from fairlane.model.event import Event, EventType
from fairlane.model.job import Job
from fairlane.model.lease import Lease
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.units import SECOND
from tests.core import core_of
from tests.world import World

MINUTE = 60 * SECOND
ENDINGS = {EventType.JOB_COMPLETE, EventType.JOB_FAILED, EventType.JOB_CANCELLED}


async def run_all(world: World, worker: Worker | None = None, batch: int = 1) -> list[str]:
    """Claim and complete until nothing can be claimed; the jobs in the order they were granted."""
    granted: list[str] = []
    while leases := await world.claim(batch, worker):
        for lease in leases:
            granted.append(lease.job)
            await world.engine.complete(lease)
    return granted


async def claim_until_found(world: World, most: int = 200) -> Lease:
    """Let seconds go by until there is something to claim, and claim it."""
    for _ in range(most):
        leases = await world.claim()
        if leases:
            return leases[0]
        await world.pass_time(1)
    raise AssertionError(f"nothing to claim for {most} s")


async def history(world: World, job: str, after: int = 0) -> list[Event]:
    """The events so far."""
    return await core_of(world.engine).ledger.events(job, after)


async def types(world: World, job: str) -> list[EventType]:
    return [event.type for event in await history(world, job)]


async def endings(world: World, job: str) -> int:
    """How often the job has ended."""
    return sum(kind in ENDINGS for kind in await types(world, job))


async def states(world: World, jobs: list[str]) -> Counter[State]:
    found = await core_of(world.engine).ledger.jobs(jobs)
    return Counter(found[job].state for job in jobs)


async def cells_of(world: World, parent: str) -> list[Job]:
    """A fan-out's executions, in the order of its matrix."""
    page = await world.engine.list_jobs(Filter(parent=parent), limit=1000)
    return page.jobs[::-1]


async def slots_match(world: World) -> None:
    """What the index believes taken is what the ledger has, number for number of slots."""
    rows = Counter(row.slot.pool for row in await core_of(world.engine).ledger.slots())
    stats = await core_of(world.engine).index.stats()
    assert {pool.pool: pool.held for pool in stats.pools if pool.held} == dict(rows)
