"""Periodic maintenance: the reaper of expired leases, promotions, reconciliation, retention. Any
number of processes may run it at once: the ledger makes every step safe to repeat."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fairlane.engine import job_log
from fairlane.engine.core import Core
from fairlane.engine.fanout_stop import stop_marked
from fairlane.engine.lease_reaper import check_ledger, reap
from fairlane.engine.outbox_relay import publish_left_behind
from fairlane.engine.rebuild import keep_up
from fairlane.engine.reconciler import reconcile, sync_pools
from fairlane.engine.unconfirmed import check_held
from fairlane.engine.wait_limit import give_up
from fairlane.engine.worker_retry_terms import refresh_declared
from fairlane.errors import NotReady, is_store_error
from fairlane.index.index import Freed
from fairlane.policy.quotas import HOUR_MICROSECONDS
from fairlane.units import SECOND

log = logging.getLogger("fairlane")

SWEEP_BATCH = 500
PROMOTION_BATCH = 100
FORECAST_BATCH = 200
RETENTION_BATCH = 200
"""Jobs that one retention transaction deletes. Each job has a few rows."""

FIRST_RETENTION_ROUND = 10
"""The first run of retention after a start, also if processes are restarted more often than
`cleanup_interval`."""

RETENTION_BATCHES_PER_SECOND = 5
"""Retention transactions for each second since the last run: 1,000 jobs/s."""

LATE_ROUND_MICROSECONDS = 3 * SECOND
"""A maintenance round that begins this late shows that the process was suspended."""

WORKER_RETENTION_MICROSECONDS = 86_400 * SECOND


async def free_slots(core: Core) -> int:
    """Free the slots that were kept for calls which must have ended by now."""
    now, total = core.now(), 0
    while tokens := await core.ledger.free_slots(now, SWEEP_BATCH):
        await core.index.free([Freed(token) for token in tokens], now)
        total += len(tokens)
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


async def catch_up(core: Core) -> int:
    """Tell an index that was unreachable what it missed: the queued jobs (from the outbox), and the
    slots that are free again."""
    if not core.index_missed or not core.ready.is_set():
        return 0
    core.index_missed = False
    try:
        await sync_pools(core)
        return await publish_left_behind(core)
    except BaseException:
        core.index_missed = True
        raise


async def poll_listened_jobs(core: Core) -> int:
    """Poll the jobs that have listeners in this process, and wake the listeners of changed jobs.
    This covers lost pub/sub messages of other processes."""
    listened = core.subscriptions.listened()
    if not core.ledger.shared:  # only the cells of a fan-out change without a message
        listened = [job for job in listened if job in core.subscriptions.fan_outs]
    found = await core.ledger.jobs(listened) if listened else {}
    looks: dict[str, object] = dict.fromkeys(listened)
    for job in found.values():
        looks[job.id] = (job.state, job.rev, job.seq, job.progress, job.cells_left)
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
            outcome = core.forecasts.started(job_id, service, job.model, job.started_at)
            if outcome is not None:
                core.instrumentation.foretold(service, job.tier, outcome.error / SECOND)
                core.activity.foretold(service, job.tier, job.started_at, kept=outcome.kept)
        elif job is None or not job.live:
            core.forecasts.forget(job_id)
    return len(told)


async def publish_activity(core: Core) -> int:
    """Add what this process has done to the counts that all processes share."""
    await core.activity.publish(core.index, core.now())
    return 0


async def forget_tiers(core: Core) -> int:
    """Clear the cache of users' tiers: other processes may have changed them."""
    if core.ledger.shared:
        core.tiers_of_users.clear()
    return 0


async def retire(core: Core) -> int:
    """Delete jobs and idempotency keys whose retention is over, at most 200 jobs per call."""
    limits, now = core.catalog.limits, core.now()
    return await core.ledger.retire(
        now - await _keep_finished(core),
        now - round(limits.keep_dead * SECOND),
        now - round(limits.keep_keys * SECOND),
        RETENTION_BATCH,
    )


async def _keep_finished(core: Core) -> int:
    """How long finished jobs are kept: at least an hour if there are quotas per hour, which count
    their records."""
    keep = round(core.catalog.limits.keep_finished * SECOND)
    if keep >= HOUR_MICROSECONDS:
        return keep
    counted = any(tier.per_hour for tier in core.catalog.tiers.all)
    return HOUR_MICROSECONDS if counted or await core.ledger.has_hourly_quotas() else keep


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
        self.ended_at: dict[str, int] = {}
        """When each kind of round last ended (µs)."""

    @property
    def rounds(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """One function per kind of round, in an order in which they may also run one by one."""
        return self.listen, self.judge, self.follow, self.tell, self.compare

    async def listen(self) -> None:
        if not await _guarded(check_ledger, self._core):
            self._core.reached_since = self._core.now()

    async def judge(self) -> None:
        """The reaper: expired leases, kept slots, and jobs that waited too long. Then fan-outs of
        which a cell has failed."""
        for step in (reap, free_slots, give_up) if self._core.clock.steady() else ():
            await _guarded(step, self._core)
        await _guarded(stop_marked, self._core)

    async def follow(self) -> None:
        """Take over what other processes have changed, and check unconfirmed proposals."""
        for step in (poll_listened_jobs, keep_up, catch_up, check_held, publish_activity):
            await _guarded(step, self._core)

    async def tell(self) -> None:
        """Every fifth round: refresh caches, record promotions, publish the outbox."""
        self._told += 1
        if self._told % 5 == 0:
            for step in OCCASIONAL_STEPS:
                await _guarded(step, self._core)

    async def compare(self) -> None:
        """Full passes: retention every `cleanup_interval`, reconciliation every 30 rounds, cleanup
        of the index every 60."""
        core = self._core
        self._compared += 1
        if self._compared % 30 == 0:
            await _guarded(reconcile, core)
        if self._compared % 60 == 0:
            await _guarded(_clean_up, core)
        if (self._compared - FIRST_RETENTION_ROUND) % retention_rounds(core) == 0:
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
            await self.once(sweep)

    async def once(self, sweep: Callable[[], Awaitable[None]]) -> None:
        await sweep()
        self.ended_at[getattr(sweep, "__name__", "")] = self._core.now()


def retention_rounds(core: Core) -> int:
    """The number of rounds between two runs of retention. A round takes a second."""
    return max(1, round(core.catalog.limits.cleanup_interval))


async def _retire_all(core: Core) -> int:
    """Run retention in small transactions, so that other writers do not wait long. Their number is
    bounded by the jobs that may have to be deleted since the last run."""
    for _ in range(RETENTION_BATCHES_PER_SECOND * retention_rounds(core)):
        if await retire(core) < RETENTION_BATCH:
            break
    return 0


async def _clean_up(core: Core) -> int:
    now = core.now()
    await core.index.cleanup(now)
    for worker_id, (_, at) in list(core.seen.items()):
        if now - at > WORKER_RETENTION_MICROSECONDS:
            core.forget_worker(worker_id)
    await core.ledger.forget_key_users(now)
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
