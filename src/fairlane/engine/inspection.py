"""Inspection (health checks): read-only looks at the engine and at how its two stores agree. What
moves while it is compared is compared again, so a busy queue gives no false alarm."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple

from fairlane.engine.core import Core
from fairlane.engine.maintenance import Maintenance
from fairlane.engine.monitor import MAX_FLOWS_EXAMINED
from fairlane.engine.queries import WaitReason, unrunnable, wait_reasons
from fairlane.errors import NotReady
from fairlane.index.index import IndexServer, Stats
from fairlane.ledger.messages import LiveSlot
from fairlane.model.job import Job
from fairlane.model.queue_entry import Entry
from fairlane.model.service import is_rate_pool
from fairlane.model.state import State

COMPARE_PAGE = 250
COMPARISONS = 3
"""How often a difference must be seen, each time in fresh data, before it counts."""

PAUSE_SECONDS = 0.1


class Drift(NamedTuple):
    """The result of comparing the index with the ledger. `queued` jobs wait in the ledger, and
    `indexed` in the index. `compared` of them were looked at one by one: fewer if time was over.
    `missing` wait in the ledger only, `stale` in the index only, `different` have another place."""

    queued: int
    indexed: int
    compared: int
    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    different: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return self.compared >= self.queued


class PoolCount(NamedTuple):
    """The slots of one pool that the ledger and the index count as taken."""

    pool: str
    in_ledger: int
    in_index: int


class FirstInLine(NamedTuple):
    """The first waiting job of a service: since when it is ready (µs), and the reasons that
    `/explain` would give. `runnable`: a live worker covers it."""

    service: str
    job: str
    tier: str
    ready_at: int
    reasons: tuple[WaitReason, ...]
    runnable: bool


class IndexState(NamedTuple):
    """`ready`: this process accepts claims. `epoch` is the generation of the index that the ledger
    confirms, `own_epoch` the one that this process uses."""

    ready: bool
    epoch: str
    own_epoch: str
    rebuilding: bool
    server: IndexServer | None


class Inspection:
    def __init__(self, core: Core, maintenance: Maintenance) -> None:
        self._core, self._maintenance = core, maintenance
        self.started_at = core.now()

    def rounds(self) -> Mapping[str, int]:
        """When each kind of maintenance round of this process last ended (µs). A kind that has not
        ended since the start has the time of the start."""
        names = [each.__name__ for each in self._maintenance.rounds]
        ended = self._maintenance.ended_at
        return {name: ended.get(name, self.started_at) for name in names}

    def usual_seconds(self, service: str) -> float:
        """The recent duration of this service's jobs."""
        return self._core.costs.get(service) / 1_000_000

    async def outbox_rows(self, limit: int) -> int:
        """The number of outbox rows, counted up to `limit`."""
        return len(await self._core.ledger.outbox(limit))

    async def ended_since(self, microseconds: int) -> Mapping[State, int]:
        """How many jobs have ended in this time, by state."""
        return await self._core.ledger.finished_since(self._core.now() - microseconds)

    def listeners(self) -> int:
        """The number of jobs with listeners in this process."""
        return len(self._core.subscriptions.listened())

    async def line(self) -> tuple[Stats, int, int, dict[str, int]]:
        """The index's counts, the numbers of queued and of running jobs, and the jobs by lane that
        no live worker covers. The cost does not depend on how many jobs wait."""
        stats = await self._core.index.stats(MAX_FLOWS_EXAMINED)
        queued, running = await self._core.ledger.load()
        return stats, queued, running, await unrunnable(self._core, stats)

    async def index_server(self) -> IndexServer | None:
        """The server of the index; None if the index is in this process. Raises NotReady if the
        server does not answer."""
        return await self._core.index.server()

    async def index(self) -> IndexState:
        core = self._core
        stamp, turn = await core.ledger.turn()
        ready = core.ready.is_set()
        server = await core.index.server()
        if ready:
            with suppress(NotReady):
                ready = False
                ready = await core.index.serves(core.epoch) is not None
        return IndexState(ready, stamp.life, core.epoch, turn.busy, server)

    async def slots(self) -> list[LiveSlot]:
        """Every taken slot in the ledger, without those of rate limits."""
        return [
            each for each in await self._core.ledger.slots() if not is_rate_pool(each.slot.pool)
        ]

    async def events_arrive(self, seconds: float) -> bool:
        """Whether this process hears of changes by other processes: a new subscription is answered
        within so many seconds. Always true if there are no other processes."""
        index, answered = self._core.index, asyncio.Event()
        if await index.server() is None:
            return True
        name = f"doctor-{self._core.ids.new(self._core.now())}"
        index.subscribe(name, answered.set)
        try:
            async with asyncio.timeout(seconds):
                await answered.wait()
        except TimeoutError:
            return False
        finally:
            index.unsubscribe(name)
        return True

    async def first_in_line(self, services: Iterable[str]) -> list[FirstInLine]:
        """The first waiting job of each of these services that has one."""
        core, found = self._core, []
        for service in services:
            front = await core.index.front(service, 1, core.now())
            jobs = await core.ledger.jobs([each.entry.id for each in front])
            for job in jobs.values():
                if job.state is State.QUEUED:
                    reasons, runnable = await wait_reasons(core, job)
                    found.append(
                        FirstInLine(service, job.id, job.tier, job.ready_at, reasons, runnable)
                    )
        return found

    async def is_indexed(self, job: Job) -> bool:
        """Whether the index knows this queued job. True for a job that is not queued, or cannot be
        in the index."""
        if job.state is not State.QUEUED or job.fan_out:
            return True
        if await self._core.index.standing(job.id, self._core.now()) is not None:
            return True
        drift = await self._confirmed([job.id], Drift(1, 0, 1))
        return job.id not in drift.missing

    async def overtaken(self, limit: int) -> int:
        """How many waiting jobs count as a better tier than their owners were told, up to
        `limit`."""
        return len(await self._core.index.promotable(self._core.now(), limit))

    # --- the two stores ----------------------------------------------------------------------
    async def miscounted_pools(self) -> list[PoolCount]:
        """Pools whose taken slots the index counts differently from the ledger, three times in a
        row while the slots in the ledger stay the same."""
        found, rows = await self._count_pools()
        for _ in range(COMPARISONS - 1):
            if not found:
                return []
            await asyncio.sleep(PAUSE_SECONDS)
            again, rows_again = await self._count_pools()
            same = {
                pool for pool in rows.keys() & rows_again.keys() if rows[pool] == rows_again[pool]
            } | (found.keys() - rows.keys() - rows_again.keys())
            found = {
                pool: count
                for pool, count in again.items()
                if found.get(pool) == count and pool in same
            }
            rows = rows_again
        return sorted(found.values())

    async def _count_pools(self) -> tuple[dict[str, PoolCount], dict[str, frozenset[str]]]:
        rows: dict[str, set[str]] = {}
        for row in await self._core.ledger.slots():
            if not is_rate_pool(row.slot.pool):
                rows.setdefault(row.slot.pool, set()).add(row.token)
        held = {
            use.pool: use.held
            for use in (await self._core.index.stats()).pools
            if not is_rate_pool(use.pool)
        }
        counted = Counter({pool: len(tokens) for pool, tokens in rows.items()})
        wrong = {
            pool: PoolCount(pool, counted[pool], held.get(pool, 0))
            for pool in {*counted, *held}
            if counted[pool] != held.get(pool, 0)
        }
        return wrong, {pool: frozenset(tokens) for pool, tokens in rows.items()}

    async def drift(self, seconds: float) -> Drift:
        """Compare every queued job with the index, for at most about so many seconds."""
        core, loop = self._core, asyncio.get_running_loop()
        until = loop.time() + seconds
        queued, indexed = await self._counts()
        suspects: set[str] = set()
        seen: set[str] = set()
        complete = True
        async with aclosing(core.ledger.live(COMPARE_PAGE)) as pages:
            async for page in pages:
                if seen and loop.time() > until:
                    complete = False
                    break
                entries = [core.entry(job) for job in page if job.state is State.QUEUED]
                seen.update(entry.id for entry in entries)
                suspects.update(job for job, _ in await core.index.differing(entries))
                await asyncio.sleep(0)  # other callers run between two pages
        async for shown in core.index.scan(COMPARE_PAGE):
            if not complete or loop.time() > until:
                complete = False
                break
            suspects.update(entry.id for entry in shown if entry.id not in seen)
        compared = queued if complete else len(seen)
        return await self._confirmed(sorted(suspects), Drift(queued, indexed, compared))

    async def _counts(self) -> tuple[int, int]:
        """The numbers of queued jobs in the ledger and in the index, read again while they differ:
        both move."""
        queued = indexed = 0
        for _ in range(COMPARISONS):
            queued, _running = await self._core.ledger.load()
            depths = (await self._core.index.stats(MAX_FLOWS_EXAMINED)).depths
            indexed = sum(each.waiting + each.delayed for each in depths)
            if queued == indexed:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        return queued, indexed

    async def _confirmed(self, suspects: Sequence[str], drift: Drift) -> Drift:
        for _ in range(COMPARISONS - 1):
            if not suspects:
                break
            await asyncio.sleep(PAUSE_SECONDS)
            drift = await self._differences(suspects, drift)
            suspects = [*drift.missing, *drift.stale, *drift.different]
        return drift

    async def _differences(self, suspects: Sequence[str], drift: Drift) -> Drift:
        """What of these jobs still differs, in freshly read data."""
        core = self._core
        jobs = await core.ledger.jobs(suspects)
        truth = {job.id: core.entry(job) for job in jobs.values() if job.state is State.QUEUED}
        wrong = await core.index.differing(list(truth.values()))
        ghosts = [each for each in suspects if each not in truth]
        stale = await self._still_shown(ghosts) if ghosts else ()
        return drift._replace(
            missing=tuple(sorted(job for job, shown in wrong if shown is None)),
            different=tuple(sorted(job for job, shown in wrong if shown is not None)),
            stale=stale,
        )

    async def _still_shown(self, jobs: Sequence[str]) -> tuple[str, ...]:
        wanted, found = set(jobs), set[str]()
        async for page in self._core.index.scan(COMPARE_PAGE):
            found.update(_ids(page) & wanted)
        return tuple(sorted(found))


def _ids(page: Sequence[Entry]) -> set[str]:
    return {entry.id for entry in page}
