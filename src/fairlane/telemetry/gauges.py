"""Gauges that are read when Prometheus scrapes."""

from __future__ import annotations

import time
from contextlib import suppress

from fairlane.engine import Engine
from fairlane.engine.queries import Overview
from fairlane.errors import NotReady, TookTooLong
from fairlane.model.state import State
from fairlane.model.worker import WorkerState
from fairlane.telemetry.metric_definitions import Labels
from fairlane.units import SECOND

AUDIT_PERIOD_MICROSECONDS = 300 * SECOND
"""The minimum time between two audits of the credit ledger: an audit reads every entry."""

Values = dict[Labels, float]


class Gauges:
    """Values read from the stores, so they are the same in every process. Exceptions describe this
    process: its clock, its readiness, and how long it has seen the same outbox row."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._oldest: tuple[int | None, int] = (None, 0)
        self._imbalance, self._added_up = 0, -AUDIT_PERIOD_MICROSECONDS

    async def read(self, *, leaving: bool = False) -> dict[str, Values]:
        """Without the index, the figures of the order of service are left out."""
        engine = self._engine
        found: dict[str, Values] = {}
        with suppress(NotReady):
            found = self._line(await engine.overview())
        return {
            **found,
            **await self._jobs(),
            **await self._stores(),
            "fairlane_ready": {(): not engine.claims_paused and not leaving},
        }

    def _line(self, overview: Overview) -> dict[str, Values]:
        engine = self._engine
        depth: Values = {}
        oldest: Values = {}
        for rank, tier in enumerate(engine.catalog.tiers.names):
            own = [each for each in overview.stats.depths if each.rank == rank]
            since = [each.oldest for each in own if each.oldest is not None]
            depth[(tier,)] = sum(each.waiting + each.delayed for each in own)
            oldest[(tier,)] = max(0, engine.clock.now() - min(since)) / SECOND if since else 0
        configured = engine.catalog.all_pools()
        pools = [each for each in overview.stats.pools if each.pool in configured]
        breakers = overview.stats.breakers
        return {
            "fairlane_queue_depth": depth,
            "fairlane_oldest_age_seconds": oldest,
            "fairlane_unrunnable": {(): sum(overview.unrunnable.values())},
            "fairlane_circuit_breaker_open": {
                (service.name, region or "none"): key in breakers
                for service in engine.catalog.services.values()
                for region in service.regions or [None]
                for key in [f"{service.name}@{region}" if region else service.name]
            },
            "fairlane_slots_held": {(each.pool,): each.held for each in pools},
            "fairlane_slots_limit": {(each.pool,): each.limit for each in pools},
        }

    async def _jobs(self) -> dict[str, Values]:
        engine = self._engine
        queued, running = await engine.load()
        states: Values = {(str(state),): 0 for state in WorkerState}
        capacity, now = 0, engine.clock.now()
        for worker, at in await engine.workers.all():
            state = WorkerState.DEAD if now - at > worker.lease else worker.state
            states[(str(state),)] += 1
            capacity += worker.capacity if state is not WorkerState.DEAD else 0
        jobs: Values = {
            ("queued",): queued,
            ("running",): running,
            ("dead",): await engine.count(State.DEAD),
        }
        used = running / capacity if capacity else 0
        return {
            "fairlane_jobs": jobs,
            "fairlane_workers": states,
            "fairlane_worker_capacity_used_ratio": {(): used},
        }

    async def _stores(self) -> dict[str, Values]:
        engine = self._engine
        signs, now = await engine.store_stats.signs(), engine.clock.now()
        here = time.time()  # noqa: TID251 - what the queue's clock is compared with
        found: dict[str, Values] = {
            "fairlane_outbox_lag_seconds": {(): self._lag(signs.outbox, now) / SECOND},
            "fairlane_ledger_imbalance": {(): await self._added(now)},
            "fairlane_clock_offset_seconds": {(): here - now / SECOND},
        }
        if signs.dead is not None:
            found["fairlane_pg_dead_tuples"] = {(name,): n for name, n in signs.dead.items()}
        if signs.oldest_transaction is not None:
            age = signs.oldest_transaction / SECOND
            found["fairlane_pg_xmin_age_seconds"] = {(): age}
        return found

    def _lag(self, oldest: int | None, now: int) -> int:
        """How long this process has seen the oldest outbox row. Rows have no timestamp."""
        if oldest is None:
            self._oldest = (None, now)
        elif self._oldest[0] != oldest:
            self._oldest = (oldest, now)
        return now - self._oldest[1] if oldest is not None else 0

    async def _added(self, now: int) -> int:
        if now - self._added_up >= AUDIT_PERIOD_MICROSECONDS:
            with suppress(TookTooLong):  # keep the last result
                self._imbalance = await self._engine.store_stats.imbalance()
            self._added_up = now
        return self._imbalance
