"""Periodic maintenance: the reaper of expired leases, promotions, reconciliation, retention. Any
number of processes may run it at once; every step is guarded in the ledger."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from fairlane.engine import job_log
from fairlane.engine.core import Core, sync_pool
from fairlane.engine.rebuild import keep_up, publish_left_behind
from fairlane.engine.settle import Failed, settle
from fairlane.engine.task_types import in_use
from fairlane.engine.unconfirmed import check_held
from fairlane.engine.worker_retry_terms import refresh_declared
from fairlane.errors import NotReady, is_store_error
from fairlane.index.index import Freed
from fairlane.ledger.messages import Settled
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.lease import Lease
from fairlane.model.queue_entry import Entry
from fairlane.model.state import State
from fairlane.model.worker import worker_of
from fairlane.policy.quotas import HOUR_MICROSECONDS
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

SWEEP_BATCH = 500
PROMOTION_BATCH = 100
FORECAST_BATCH = 200
RETENTION_BATCH = 200
"""Jobs a transaction; each has a few rows."""

RECONCILE_PAGE = 200
REST, LONGEST_REST, REST_IN_ALL = 4, 2.0, 30.0
"""How long a pass over everything rests after a page, as a multiple of the time that took; how many
seconds at the most, and in all."""

LATE_ROUND_MICROSECONDS = 3 * SECOND
"""A round that comes this late means that the process was away."""

LEDGER_AWAY_MICROSECONDS = 4 * SECOND
"""Time without an answer of the ledger after which others may not have reached it either."""

WORKER_RETENTION_MICROSECONDS = 86_400 * SECOND


async def reap(core: Core) -> int:
    """Take back expired leases; but only those that last no longer than this process has been in
    unbroken touch with the ledger: who was away must not judge those who could not reach it."""
    total = 0
    while True:
        now = core.now()
        expired = await core.ledger.expired(now, now - core.reached_since, SWEEP_BATCH)
        if _was_away(core):
            return total
        if expired:
            settled = await settle(core, [_gone(lease, now) for lease in expired])
            core.instrumentation.expired(sum(isinstance(each, Settled) for each in settled))
        total += len(expired)
        if len(expired) < SWEEP_BATCH:
            return total


async def stay_in_touch(core: Core) -> None:
    """Notice how long the ledger could not be reached, for whatever reason."""
    await core.ledger.turn()
    _was_away(core)


def _was_away(core: Core) -> bool:
    """The ledger has just answered. Whether it, or this process, stood still before that."""
    now, before = core.clock.machine(), core.touched
    core.touched = now
    if now - before <= LEDGER_AWAY_MICROSECONDS:
        return False
    core.reached_since = core.now()
    return True


def _gone(lease: Lease, now: int) -> Failed:
    """The back-off began when the lease ended, not when somebody noticed."""
    if now >= lease.deadline:
        message = f"no result after {(lease.deadline - lease.started_at) / SECOND:g} s"
        fault, outcome = Fault.TIMEOUT, Outcome.TIMEOUT
    else:
        message = f"worker {worker_of(lease.worker)} was not heard of again"
        fault, outcome = Fault.TRANSIENT, Outcome.LOST
    ended_at = lease.lease_until
    return Failed(lease, fault, message, closed=False, outcome=outcome, ended_at=ended_at)


async def free_slots(core: Core) -> int:
    """Slots kept for calls that must be over by now."""
    now, total = core.now(), 0
    while tokens := await core.ledger.free_slots(now, SWEEP_BATCH):
        await core.index.free([Freed(token) for token in tokens], now)
        total += len(tokens)
    return total


async def give_up(core: Core) -> int:
    """Jobs that have waited longer than their owners allow."""
    total = 0
    while True:
        written = await core.ledger.give_up(core.now(), SWEEP_BATCH)
        (jobs,) = written.outcomes
        await core.index.take([(job.id, job.rev + 1) for job in jobs])
        core.ledger.published(written.receipts)
        core.subscriptions.tell(job.id for job in jobs)
        core.subscriptions.tell(job.parent for job in jobs if job.parent is not None)
        job_log.gave_up(jobs)
        total += len(jobs)
        if len(jobs) < SWEEP_BATCH:
            return total


async def announce_promotions(core: Core) -> int:
    """Tell owners what their jobs count as by now. Order never depends on it."""
    now = core.now()
    found = await core.index.promotable(now, PROMOTION_BATCH)
    if not found:
        return 0
    names = core.catalog.tiers.names
    levels = [(job, names[rank]) for job, rank in found]
    before = await core.ledger.promote(levels, names, now)
    core.instrumentation.promoted(zip(before, (level for _, level in levels), strict=True))
    await job_log.promoted(core, levels, before)
    await core.index.announced(found)
    core.subscriptions.tell(job for job, _ in found)
    return len(found)


async def reconcile(core: Core) -> int:
    """Compare every live row with the index. Only names what to publish: the publisher reads the
    present state, so a page that is old by now does no harm."""
    corrected = 0
    in_line: set[str] = set()
    pace = MaintenanceIntervals()
    began = core.now()
    async with aclosing(core.ledger.live(RECONCILE_PAGE)) as pages:
        async for page in pages:
            queued = [core.entry(job) for job in page if job.state is State.QUEUED]
            in_line.update(entry.id for entry in queued)
            core.task_types.see(in_use(core.catalog, page), began)
            wrong = await core.index.differing(queued)
            if wrong:
                corrected += await _mend(core, wrong)
            await pace.rest(len(page))
    core.task_types.forget(began)
    async for shown in core.index.walk(RECONCILE_PAGE):
        suspects = [entry for entry in shown if entry.id not in in_line]
        corrected += await _drop_ghosts(core, suspects)
        await pace.rest(len(shown))
    core.instrumentation.corrected(corrected)
    return corrected + await _sync_pools(core)


async def _sync_pools(core: Core) -> int:
    corrected = 0
    for pool in [*core.catalog.all_pools(), *await _miscounted(core)]:
        corrected += await sync_pool(core, pool)
    return corrected


class MaintenanceIntervals:
    """Of a pass over everything. Between full pages there is time for everybody else, who would
    wait for each row otherwise; but not for ever."""

    def __init__(self) -> None:
        self._rested, self._began = 0.0, time.perf_counter()

    async def rest(self, rows: int) -> None:
        if rows == RECONCILE_PAGE and self._rested < REST_IN_ALL:
            rest = min(LONGEST_REST, REST * (time.perf_counter() - self._began))
            await asyncio.sleep(rest)
            self._rested += rest
        self._began = time.perf_counter()


async def _miscounted(core: Core) -> list[str]:
    """Pools of users and of task types of whose running jobs the index does not know the number."""
    configured = core.catalog.all_pools()
    held = Counter(row.slot.pool for row in await core.ledger.slots())
    held.subtract({use.pool: use.held for use in (await core.index.stats()).pools})
    return sorted(pool for pool, n in held.items() if n and pool not in configured)


async def _mend(core: Core, wrong: list[tuple[str, Entry | None]]) -> int:
    """How many were wrong. What has just moved looks like it, until the second look."""
    found = await core.ledger.jobs([job for job, _ in wrong])
    queued = [core.entry(job) for job in found.values() if job.state is State.QUEUED]
    still = await core.index.differing(queued)
    missing: list[Entry] = []
    for job_id, shown in wrong:
        job = found.get(job_id)
        truth = core.entry(job) if job is not None and job.state is State.QUEUED else None
        if shown is not None:
            await core.index.mend(shown, truth, core.now())
        elif truth is not None:
            missing.append(truth)
    await core.index.put(missing, core.now())
    return len(still)


async def _drop_ghosts(core: Core, shown: list[Entry]) -> int:
    """What the index shows as waiting and the ledger does not have in line. What was claimed since
    it was shown is no ghost."""
    found = await core.ledger.jobs([entry.id for entry in shown]) if shown else {}
    ghosts = [
        entry
        for entry in shown
        if entry.id not in found or found[entry.id].state is not State.QUEUED
    ]
    moved = {job for job, _ in await core.index.differing(ghosts)}
    moved |= {job.id for job in found.values() if job.state is State.RUNNING}
    for ghost in ghosts:
        await core.index.mend(ghost, None, core.now())
    return sum(ghost.id not in moved for ghost in ghosts)


async def catch_up(core: Core) -> int:
    """An index that was away learns what happened meanwhile: what is in line, and which slots are
    free again."""
    if not core.index_missed or not core.ready.is_set():
        return 0
    core.index_missed = False
    try:
        await _sync_pools(core)
        return await publish_left_behind(core)
    except BaseException:
        core.index_missed = True
        raise


async def look_for_news(core: Core) -> int:
    """The safety net under pub/sub: other processes may have changed jobs with listeners here,
    and their messages may be lost."""
    listened = core.subscriptions.listened() if core.ledger.shared else []
    found = await core.ledger.jobs(listened) if listened else {}
    looks: dict[str, object] = dict.fromkeys(listened)
    for job in found.values():
        looks[job.id] = (job.state, job.rev, job.seq, job.progress)
    return core.subscriptions.compare(looks)


async def notice_starts(core: Core) -> int:
    """Jobs whose owners this process told when may be started by other processes, or never."""
    told = core.forecasts.not_started(FORECAST_BATCH)
    found = await core.ledger.jobs(list(told)) if told else {}
    for job_id, at in told.items():
        job = found.get(job_id)
        if job is not None and job.started_at is not None and job.started_at >= at:
            service = job.current.service
            error = core.forecasts.started(job_id, service, job.model, job.started_at)
            if error is not None:
                core.instrumentation.foretold(service, job.tier, error / SECOND)
        elif job is None or not job.live:
            core.forecasts.forget(job_id)
    return len(told)


async def forget_tiers(core: Core) -> int:
    """Those of users may be changed by other processes."""
    if core.ledger.shared:
        core.tiers_of_users.clear()
    return 0


async def retire(core: Core) -> int:
    """Remove what has been kept long enough, a bounded number at a time. An hour at the least: the
    hourly quota counts records."""
    limits, now = core.catalog.limits, core.now()
    return await core.ledger.retire(
        now - max(HOUR_MICROSECONDS, round(limits.keep_finished * SECOND)),
        now - round(limits.keep_dead * SECOND),
        now - round(limits.keep_keys * SECOND),
        RETENTION_BATCH,
    )


TOLD = (forget_tiers, refresh_declared, notice_starts, announce_promotions, publish_left_behind)


class Maintenance:
    """All of the above, each at its own pace, in rounds that begin once a second. They run beside
    each other: an index that hangs keeps nobody from hearing the ledger or from judging leases, and
    what walks over everything delays nobody."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._told = self._compared = 0

    @property
    def rounds(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """One of each kind, in an order in which they may run one after the other."""
        return self.listen, self.judge, self.follow, self.tell, self.compare

    async def listen(self) -> None:
        if not await _guarded(stay_in_touch, self._core):
            self._core.reached_since = self._core.now()

    async def judge(self) -> None:
        """What a worker or a waiting job depends on."""
        for step in (reap, free_slots, give_up) if self._core.clock.steady() else ():
            await _guarded(step, self._core)

    async def follow(self) -> None:
        """What others have done."""
        for step in (look_for_news, keep_up, catch_up, check_held):
            await _guarded(step, self._core)

    async def tell(self) -> None:
        """Every fifth time, what somebody should know."""
        self._told += 1
        if self._told % 5 == 0:
            for step in TOLD:
                await _guarded(step, self._core)

    async def compare(self) -> None:
        """What walks over everything, less often still."""
        core = self._core
        self._compared += 1
        if self._compared % 30 == 0:
            await _guarded(reconcile, core)
        if self._compared % 60 == 0:
            await _guarded(_tidy, core)
        if self._compared % 10 == 0:
            await _guarded(_retire_all, core)

    async def run(self, sweep: Callable[[], Awaitable[None]]) -> None:
        """Round after round. One that comes late means that this process was away."""
        core = self._core
        while True:
            before = core.now()
            await core.clock.sleep(SECOND)
            if core.now() - before > SECOND + LATE_ROUND_MICROSECONDS:
                core.reached_since = core.now()
            await sweep()


async def _retire_all(core: Core) -> int:
    """In small transactions, and not for longer than others can wait."""
    for _ in range(50):
        if await retire(core) < RETENTION_BATCH:
            break
    return 0


async def _tidy(core: Core) -> int:
    now = core.now()
    await core.index.tidy(now)
    for worker_id, (_, at) in list(core.seen.items()):
        if now - at > WORKER_RETENTION_MICROSECONDS:
            core.forget_worker(worker_id)
    return await core.ledger.forget_workers(now - WORKER_RETENTION_MICROSECONDS)


async def _guarded(step: Callable[[Core], Awaitable[object]], core: Core) -> bool:
    """One step that fails must not keep the others, or the next round, from running."""
    try:
        await step(core)
    except NotReady as error:
        log.warning("sweep: %s: %s, trying again in the next round", step.__name__, error)
        return False
    except Exception as error:
        if is_store_error(error):
            log.warning("sweep: %s: %r, trying again in the next round", step.__name__, error)
        else:
            log.exception("sweep: %s failed, trying again in the next round", step.__name__)
        return False
    return True
