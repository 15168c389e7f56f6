"""Gathers facts from a running engine: each fact group on its own, at most 2 s each, read-only."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import version

from fairlane.config.settings import Settings
from fairlane.doctor.facts import (
    AccuracyFacts,
    CeleryFacts,
    DriftFacts,
    EndedFacts,
    EventFacts,
    Facts,
    FrontFacts,
    Here,
    IndexAnswer,
    IndexFacts,
    InvariantFacts,
    KeyFacts,
    LedgerFacts,
    LineFacts,
    NotLooked,
    RetentionFacts,
    RoundFacts,
    RunningFacts,
    WebhookFacts,
    WorkerFacts,
)
from fairlane.engine import Engine
from fairlane.engine.activity import period_of
from fairlane.errors import FairlaneError, NotReady, is_store_error
from fairlane.index.index import ACTIVITY_PERIODS
from fairlane.ledger.store_stats import StoreSigns
from fairlane.model.state import State
from fairlane.model.worker import worker_of
from fairlane.units import SECOND

CHECK_SECONDS = 2.0
"""The most seconds that one fact group may take."""

READ_SECONDS = 1.5
"""The most seconds of one long read. It ends by itself before the group's time is over."""

EVENT_SECONDS = 1.5
ANSWER_SECONDS = 1.5
LATEST_WEBHOOKS = 200
MAX_KEYS = 10_000
MAX_OUTBOX_ROWS = 1_000
MAX_OVERDUE = 1_000
MAX_FRONTS = 50
MAX_OVERTAKEN = 100
RECENT_MICROSECONDS = 60 * SECOND
RETENTION_MARGIN_MICROSECONDS = 600 * SECOND

CeleryLoad = Callable[[], Awaitable[Mapping[str, tuple[int, int]] | None]]


class Gatherer:
    """Reads fact groups. It remembers since when it has seen the oldest outbox row, because rows
    have no timestamp. `positions_per_second`: how many listeners get a new position each second."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        *,
        celery: CeleryLoad | None = None,
        wall_clock: Callable[[], int] | None = None,
        positions_per_second: int = 500,
    ) -> None:
        self._engine, self._settings = engine, settings
        self._celery = celery or _no_celery
        self._wall_clock = wall_clock or machine_clock
        self._positions_per_second = positions_per_second
        self._oldest: tuple[int | None, int] = (None, 0)
        self.looked = asyncio.Event()
        """Set when facts were gathered for the first time."""
        self._read: dict[type, Callable[[], Awaitable[object]]] = {
            Here: self.here,
            LedgerFacts: self._ledger,
            IndexAnswer: self._index_answer,
            IndexFacts: self._index,
            LineFacts: self._line,
            FrontFacts: self._front,
            RunningFacts: self._running,
            WorkerFacts: self._workers,
            EndedFacts: self._ended,
            WebhookFacts: self._webhooks,
            KeyFacts: self._keys,
            RetentionFacts: self._retention,
            EventFacts: self._events,
            RoundFacts: self._rounds,
            CeleryFacts: self._celery_loads,
            AccuracyFacts: self._accuracy,
            InvariantFacts: self._invariants,
            DriftFacts: self._drift,
        }

    async def facts(self, kinds: Iterable[type]) -> Facts:
        """These fact groups, read at the same time."""
        wanted = list(dict.fromkeys(kinds))
        found = await asyncio.gather(*(self._group(kind) for kind in wanted))
        self.looked.set()
        return Facts(dict(zip(wanted, found, strict=True)))

    async def _group(self, kind: type) -> object:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return await self._read[kind]()
        except TimeoutError:
            return NotLooked(f"no answer within {CHECK_SECONDS:g} s")
        except FairlaneError as error:
            return NotLooked(str(error))
        except Exception as error:
            if not is_store_error(error):
                raise
            return NotLooked(f"the store does not answer ({type(error).__name__})")

    # --- this process ------------------------------------------------------------------------
    async def here(self) -> Here:
        server = self._settings.server
        return Here(
            version=version("fairlane"),
            mode=server.mode,
            host=server.host,
            loopback=server.loopback,
            now=self._engine.clock.now(),
            wall_clock=self._wall_clock(),
            catalog=self._engine.catalog,
            called=frozenset(self._settings.endpoints),
            notes=tuple(self._settings.notes),
            speed=server.simulated_speed or 1,
        )

    async def _rounds(self) -> RoundFacts:
        return RoundFacts(self._engine.inspection.rounds())

    async def _accuracy(self) -> AccuracyFacts:
        estimates: dict[str, tuple[int, int]] = {}
        targets: dict[tuple[str, str], tuple[int, int]] = {}
        since = period_of(self._engine.clock.now()) - ACTIVITY_PERIODS
        for period in await self._engine.monitor.activity(since):
            for (service, tier), activity in period.tiers.items():
                done = activity.counts
                told, kept = estimates.get(service, (0, 0))
                estimates[service] = (told + done.estimated, kept + done.kept)
                started, in_time = targets.get((service, tier), (0, 0))
                targets[service, tier] = (started + done.started, in_time + done.in_target)
        return AccuracyFacts(estimates, targets)

    async def _events(self) -> EventFacts:
        inspection = self._engine.inspection
        return EventFacts(
            await inspection.events_arrive(EVENT_SECONDS),
            inspection.listeners(),
            self._positions_per_second,
        )

    async def _celery_loads(self) -> CeleryFacts:
        return CeleryFacts(await self._celery())

    # --- the stores --------------------------------------------------------------------------
    async def _ledger(self) -> LedgerFacts:
        stats = self._engine.store_stats
        server, signs = await stats.server(), await stats.signs()
        rows = await self._engine.inspection.outbox_rows(MAX_OUTBOX_ROWS) if signs.outbox else 0
        return LedgerFacts(server, signs, self._outbox_age(signs), rows)

    def _outbox_age(self, signs: StoreSigns) -> int:
        now = self._engine.clock.now()
        if signs.outbox is None or self._oldest[0] != signs.outbox:
            self._oldest = (signs.outbox, now)
        return now - self._oldest[1] if signs.outbox is not None else 0

    async def _index_answer(self) -> IndexAnswer:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._engine.inspection.index_server()
        except (NotReady, TimeoutError):
            return IndexAnswer(answers=False)
        return IndexAnswer(answers=True)

    async def _index(self) -> IndexFacts:
        return IndexFacts(await self._engine.inspection.index())

    async def _retention(self) -> RetentionFacts:
        limits, now = self._engine.catalog.limits, self._engine.clock.now()
        late = round(3 * limits.cleanup_interval * SECOND) + RETENTION_MARGIN_MICROSECONDS
        hour = 3_600.0  # finished jobs stay for at least an hour, for the hourly quota
        overdue = await self._engine.store_stats.overdue(
            now - round(max(hour, limits.keep_finished) * SECOND) - late,
            now - round(limits.keep_dead * SECOND) - late,
            MAX_OVERDUE,
        )
        return RetentionFacts(overdue, MAX_OVERDUE)

    async def _invariants(self) -> InvariantFacts:
        return InvariantFacts(await self._engine.store_stats.invariants(READ_SECONDS))

    async def _drift(self) -> DriftFacts:
        inspection = self._engine.inspection
        drift, pools = await asyncio.gather(
            inspection.drift(READ_SECONDS), inspection.miscounted_pools()
        )
        return DriftFacts(drift, pools)

    # --- the queue ---------------------------------------------------------------------------
    async def _line(self) -> LineFacts:
        return LineFacts(*await self._engine.inspection.line())

    async def _front(self) -> FrontFacts:
        stats = await self._engine.index_stats()
        waiting: Counter[str] = Counter()
        for depth in stats.depths:
            waiting[depth.service] += depth.waiting
        busiest = [service for service, jobs in waiting.most_common(MAX_FRONTS) if jobs]
        inspection = self._engine.inspection
        return FrontFacts(
            await inspection.first_in_line(busiest), await inspection.overtaken(MAX_OVERTAKEN)
        )

    async def _running(self) -> RunningFacts:
        jobs = await self._engine.workers.running_jobs()
        slots = await self._engine.inspection.slots()
        names = {job.current.service for job in jobs}
        usual = {name: self._engine.inspection.usual_seconds(name) for name in names}
        return RunningFacts(jobs, slots, usual)

    async def _workers(self) -> WorkerFacts:
        registry = self._engine.workers
        holds = Counter(worker_of(job.worker or "") for job in await registry.running_jobs())
        return WorkerFacts(await registry.all(), holds)

    async def _ended(self) -> EndedFacts:
        recent = await self._engine.inspection.ended_since(RECENT_MICROSECONDS)
        return EndedFacts(recent, await self._engine.count(State.DEAD))

    async def _webhooks(self) -> WebhookFacts:
        return WebhookFacts(await self._engine.webhooks.listed(LATEST_WEBHOOKS))

    async def _keys(self) -> KeyFacts:
        return KeyFacts(await self._engine.api_keys.page(None, MAX_KEYS))


async def _no_celery() -> None:
    return None


def machine_clock() -> int:
    """This machine's time (µs)."""
    return round(time.time() * SECOND)  # noqa: TID251 - what the queue's clock is compared with
