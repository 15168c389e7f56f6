"""Periodic maintenance: the reaper of expired leases, promotions, reconciliation, retention. Any
number of processes may run it at once: the ledger makes every step safe to repeat."""

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
"""Jobs that one retention transaction deletes. Each job has a few rows."""

RECONCILE_PAGE = 200
PAUSE_FACTOR, MAX_PAUSE_SECONDS, MAX_TOTAL_PAUSE_SECONDS = 4, 2.0, 30.0
"""A full pass pauses after each full page. The pause is this multiple of the time the page took, at
most this many seconds, and at most this many seconds for the whole pass."""

LATE_ROUND_MICROSECONDS = 3 * SECOND
"""A maintenance round that begins this late shows that the process was suspended."""

LEDGER_AWAY_MICROSECONDS = 4 * SECOND
"""Time without an answer of the ledger after which lease holders may not have reached it either."""

WORKER_RETENTION_MICROSECONDS = 86_400 * SECOND


async def reap(core: Core) -> int:
    """Take back expired leases. A lease is taken back only if this process has reached the ledger
    without a break for at least the length of the lease. After an outage, workers that could not
    renew their leases keep them for one full length more."""
    total = 0
    while True:
        now = core.now()
        expired = await core.ledger.expired(now, now - core.reached_since, SWEEP_BATCH)
        if _had_outage(core):
            return total
        if expired:
            settled = await settle(core, [_expired(lease, now) for lease in expired])
            core.instrumentation.expired(sum(isinstance(each, Settled) for each in settled))
        total += len(expired)
        if len(expired) < SWEEP_BATCH:
            return total


async def check_ledger(core: Core) -> None:
    """Read from the ledger, to notice an outage of the ledger or a pause of this process."""
    await core.ledger.turn()
    _had_outage(core)


def _had_outage(core: Core) -> bool:
    """Called when the ledger has just answered. Returns whether more than 4 s have passed since its
    previous answer: the ledger was unreachable, or this process was suspended."""
    now, before = core.clock.machine(), core.ledger_answered_at
    core.ledger_answered_at = now
    if now - before <= LEDGER_AWAY_MICROSECONDS:
        return False
    core.reached_since = core.now()
    return True


def _expired(lease: Lease, now: int) -> Failed:
    """The failure report of an expired lease. The back-off counts from the end of the lease, not
    from the time the reaper found it."""
    if now >= lease.deadline:
        message = f"no result after {(lease.deadline - lease.started_at) / SECOND:g} s"
        fault, outcome = Fault.TIMEOUT, Outcome.TIMEOUT
    else:
        message = f"worker {worker_of(lease.worker)} was not heard of again"
        fault, outcome = Fault.TRANSIENT, Outcome.LOST
    ended_at = lease.lease_until
    return Failed(lease, fault, message, closed=False, outcome=outcome, ended_at=ended_at)


async def free_slots(core: Core) -> int:
    """Free the slots that were kept for calls which must have ended by now."""
    now, total = core.now(), 0
    while tokens := await core.ledger.free_slots(now, SWEEP_BATCH):
        await core.index.free([Freed(token) for token in tokens], now)
        total += len(tokens)
    return total


async def give_up(core: Core) -> int:
    """Fail the jobs that have waited longer than their `max_wait`."""
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
    """Record promotions as events, for the owners of the jobs. The order of service never depends
    on these events."""
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
    """Compare every live job in the ledger with the index, and correct the index. A correction
    reads the job again, so an outdated page does no harm. Returns the number of corrections."""
    corrected = 0
    in_line: set[str] = set()
    pauses = PassPauses()
    began = core.now()
    async with aclosing(core.ledger.live(RECONCILE_PAGE)) as pages:
        async for page in pages:
            queued = [core.entry(job) for job in page if job.state is State.QUEUED]
            in_line.update(entry.id for entry in queued)
            core.task_types.see(in_use(core.catalog, page), began)
            wrong = await core.index.differing(queued)
            if wrong:
                corrected += await _correct_entries(core, wrong)
            await pauses.pause(len(page))
    core.task_types.forget(began)
    async for shown in core.index.walk(RECONCILE_PAGE):
        suspects = [entry for entry in shown if entry.id not in in_line]
        corrected += await _remove_stale_entries(core, suspects)
        await pauses.pause(len(shown))
    core.instrumentation.corrected(corrected)
    return corrected + await _sync_pools(core)


async def _sync_pools(core: Core) -> int:
    corrected = 0
    for pool in [*core.catalog.all_pools(), *await _miscounted(core)]:
        corrected += await sync_pool(core, pool)
    return corrected


class PassPauses:
    """The pauses of a full pass. A pause after each full page leaves the stores to other requests.
    The total of all pauses is bounded."""

    def __init__(self) -> None:
        self._paused, self._began = 0.0, time.perf_counter()

    async def pause(self, rows: int) -> None:
        if rows == RECONCILE_PAGE and self._paused < MAX_TOTAL_PAUSE_SECONDS:
            seconds = min(MAX_PAUSE_SECONDS, PAUSE_FACTOR * (time.perf_counter() - self._began))
            await asyncio.sleep(seconds)
            self._paused += seconds
        self._began = time.perf_counter()


async def _miscounted(core: Core) -> list[str]:
    """Pools of users and of task types for which the index counts other running jobs than the
    ledger."""
    configured = core.catalog.all_pools()
    held = Counter(row.slot.pool for row in await core.ledger.slots())
    held.subtract({use.pool: use.held for use in (await core.index.stats()).pools})
    return sorted(pool for pool, n in held.items() if n and pool not in configured)


async def _correct_entries(core: Core, wrong: list[tuple[str, Entry | None]]) -> int:
    """Correct these entries of the index. Returns how many were really wrong: an entry that only
    looked wrong because its job had just moved is equal in the second comparison."""
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


async def _remove_stale_entries(core: Core, shown: list[Entry]) -> int:
    """Remove entries that wait in the index and are not queued in the ledger. Returns how many
    there were, without jobs that were claimed after the index was read."""
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
    """Tell an index that was unreachable what it missed: the queued jobs (from the outbox), and the
    slots that are free again."""
    if not core.index_missed or not core.ready.is_set():
        return 0
    core.index_missed = False
    try:
        await _sync_pools(core)
        return await publish_left_behind(core)
    except BaseException:
        core.index_missed = True
        raise


async def poll_listened_jobs(core: Core) -> int:
    """Poll the jobs that have listeners in this process, and wake the listeners of changed jobs.
    This covers lost pub/sub messages of other processes."""
    listened = core.subscriptions.listened() if core.ledger.shared else []
    found = await core.ledger.jobs(listened) if listened else {}
    looks: dict[str, object] = dict.fromkeys(listened)
    for job in found.values():
        looks[job.id] = (job.state, job.rev, job.seq, job.progress)
    return core.subscriptions.compare(looks)


async def notice_starts(core: Core) -> int:
    """Compare ETAs that this process gave with the real starts. Another process may have started
    the job, or the job may have ended without a start."""
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
    """Clear the cache of users' tiers: other processes may have changed them."""
    if core.ledger.shared:
        core.tiers_of_users.clear()
    return 0


async def retire(core: Core) -> int:
    """Delete jobs and idempotency keys whose retention is over, at most 200 jobs per call. Finished
    jobs stay for at least an hour, because the hourly quota counts their records."""
    limits, now = core.catalog.limits, core.now()
    return await core.ledger.retire(
        now - max(HOUR_MICROSECONDS, round(limits.keep_finished * SECOND)),
        now - round(limits.keep_dead * SECOND),
        now - round(limits.keep_keys * SECOND),
        RETENTION_BATCH,
    )


OCCASIONAL_STEPS = (
    forget_tiers,
    refresh_declared,
    notice_starts,
    announce_promotions,
    publish_left_behind,
)


class Maintenance:
    """Runs all steps of this module, each at its own interval, in rounds that begin once a second.
    The rounds run concurrently: an index that hangs does not delay the ledger check or the reaper,
    and a full pass delays no other round."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._told = self._compared = 0

    @property
    def rounds(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """One function per kind of round, in an order in which they may also run one by one."""
        return self.listen, self.judge, self.follow, self.tell, self.compare

    async def listen(self) -> None:
        if not await _guarded(check_ledger, self._core):
            self._core.reached_since = self._core.now()

    async def judge(self) -> None:
        """The reaper: expired leases, kept slots, and jobs that waited too long."""
        for step in (reap, free_slots, give_up) if self._core.clock.steady() else ():
            await _guarded(step, self._core)

    async def follow(self) -> None:
        """Take over what other processes have changed, and check unconfirmed proposals."""
        for step in (poll_listened_jobs, keep_up, catch_up, check_held):
            await _guarded(step, self._core)

    async def tell(self) -> None:
        """Every fifth round: refresh caches, record promotions, publish the outbox."""
        self._told += 1
        if self._told % 5 == 0:
            for step in OCCASIONAL_STEPS:
                await _guarded(step, self._core)

    async def compare(self) -> None:
        """Full passes: retention every 10 rounds, reconciliation every 30, cleanup every 60."""
        core = self._core
        self._compared += 1
        if self._compared % 30 == 0:
            await _guarded(reconcile, core)
        if self._compared % 60 == 0:
            await _guarded(_clean_up, core)
        if self._compared % 10 == 0:
            await _guarded(_retire_all, core)

    async def run(self, sweep: Callable[[], Awaitable[None]]) -> None:
        """Run one kind of round for ever, once a second. After a late round this process counts as
        having just reached the ledger."""
        core = self._core
        while True:
            before = core.now()
            await core.clock.sleep(SECOND)
            if core.now() - before > SECOND + LATE_ROUND_MICROSECONDS:
                core.reached_since = core.now()
            await sweep()


async def _retire_all(core: Core) -> int:
    """Run retention in at most 50 small transactions, so that other writers do not wait long."""
    for _ in range(50):
        if await retire(core) < RETENTION_BATCH:
            break
    return 0


async def _clean_up(core: Core) -> int:
    now = core.now()
    await core.index.tidy(now)
    for worker_id, (_, at) in list(core.seen.items()):
        if now - at > WORKER_RETENTION_MICROSECONDS:
            core.forget_worker(worker_id)
    return await core.ledger.forget_workers(now - WORKER_RETENTION_MICROSECONDS)


async def _guarded(step: Callable[[Core], Awaitable[object]], core: Core) -> bool:
    """Run one step and log its failure, so that the other steps and the next round still run.
    Returns whether the step succeeded."""
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
