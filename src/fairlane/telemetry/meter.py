"""From what happens in an engine to numbers."""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.engine import Engine
from fairlane.ledger.shapes import Accepted, Settled, Settlement, Stale, Submission, SubmitOutcome
from fairlane.model.attempt import Outcome
from fairlane.model.lease import Lease
from fairlane.model.service import is_user_pool
from fairlane.model.state import ENDED, Move, State
from fairlane.model.worker import WorkerState
from fairlane.telemetry.declared import METRICS
from fairlane.telemetry.metrics import Labels, Registry

SECOND = 1_000_000


class EngineMeter:
    """Counts what this process does; gauges are read from the stores, so they are the same in every
    process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = Registry(METRICS)
        engine.core.meter = self

    # --- as it happens -----------------------------------------------------------------------
    def submitted(self, outcomes: Iterable[tuple[Submission, SubmitOutcome]]) -> None:
        for submission, outcome in outcomes:
            if isinstance(outcome, Accepted):
                self._numbers.add("fairlane_jobs_submitted_total", submission.tier)

    def started(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._numbers.add("fairlane_jobs_claimed_total", lease.service)
            if lease.fence == 1:
                waited = lease.waited / SECOND
                self._numbers.observe(
                    "fairlane_queue_wait_seconds", waited, lease.service, lease.tier
                )

    def settled(self, outcomes: Iterable[tuple[Settlement, Settled | Stale]]) -> None:
        for settlement, outcome in outcomes:
            self._settled(settlement, outcome)

    def _settled(self, settlement: Settlement, outcome: Settled | Stale) -> None:
        numbers, lease = self._numbers, settlement.lease
        if isinstance(outcome, Stale):
            numbers.add("fairlane_stale_writes_rejected_total")
            return
        if outcome.again:
            return
        if settlement.outcome is Outcome.LOST:
            numbers.add("fairlane_worker_heartbeat_failures_total")
        if settlement.move is Move.RETRY:
            fault = str(settlement.fault or "")
            numbers.add("fairlane_task_retries_total", lease.tier, fault)
        if outcome.state in ENDED:
            self._ended(settlement, outcome.state)

    def _ended(self, settlement: Settlement, state: State) -> None:
        lease = settlement.lease
        took = (settlement.now - lease.queued_at) / SECOND
        self._numbers.observe("fairlane_task_duration_seconds", took, lease.tier, state)
        if settlement.error is not None:
            self._numbers.add("fairlane_tasks_failed_total", settlement.error.code)
        if state is State.DEAD:
            self._numbers.add("fairlane_tasks_dlq_total")

    def promoted(self, levels: Iterable[tuple[str | None, str]]) -> None:
        for before, now in levels:
            if before is not None:
                self._numbers.add("fairlane_jobs_promoted_total", before, now)

    # --- as it is ----------------------------------------------------------------------------
    async def text(self) -> str:
        return self._numbers.text(await self._gauges())

    async def _gauges(self) -> dict[str, dict[Labels, float]]:
        core = self._engine.core
        overview = await self._engine.overview()
        now = core.now()
        depth: dict[Labels, float] = {}
        oldest: dict[Labels, float] = {}
        for rank, tier in enumerate(core.catalog.tiers.names):
            own = [each for each in overview.stats.depths if each.rank == rank]
            since = [each.oldest for each in own if each.oldest is not None]
            depth[(tier,)] = sum(each.waiting + each.delayed for each in own)
            oldest[(tier,)] = max(0, now - min(since)) / SECOND if since else 0
        states: dict[Labels, float] = {(str(state),): 0 for state in WorkerState}
        capacity = 0
        for worker, at in await core.ledger.workers():
            state = WorkerState.DEAD if now - at > worker.lease else worker.state
            states[(str(state),)] += 1
            capacity += worker.capacity if state is not WorkerState.DEAD else 0
        pools = [each for each in overview.stats.pools if not is_user_pool(each.pool)]
        dead = await core.ledger.count(State.DEAD)
        jobs: dict[Labels, float] = {
            ("queued",): overview.queued,
            ("running",): overview.running,
            ("dead",): dead,
        }
        return {
            "fairlane_queue_depth": depth,
            "fairlane_oldest_age_seconds": oldest,
            "fairlane_unrunnable": {(): sum(overview.unrunnable.values())},
            "fairlane_jobs": jobs,
            "fairlane_workers": states,
            "fairlane_worker_capacity_used_ratio": {
                (): overview.running / capacity if capacity else 0
            },
            "fairlane_slots_held": {(each.pool,): each.held for each in pools},
            "fairlane_slots_limit": {(each.pool,): each.limit for each in pools},
        }
