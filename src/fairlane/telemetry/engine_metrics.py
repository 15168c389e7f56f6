"""Prometheus instrumentation of the engine and the API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from fairlane.engine import Engine
from fairlane.ledger.messages import (
    Settled,
    Settlement,
    Stale,
    Submission,
    SubmissionAccepted,
    SubmitOutcome,
)
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.lease import Lease
from fairlane.model.state import ENDED, Move, State
from fairlane.telemetry.gauges import Gauges, Values
from fairlane.telemetry.metric_definitions import METRICS
from fairlane.telemetry.prometheus import Registry
from fairlane.units import SECOND

PUT_OFF = frozenset({429, 503})
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")


class EngineMeter:
    """Counters and histograms of this process. Gauges are read at each scrape."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._gauges = engine, Gauges(engine)
        numbers = self._numbers = Registry(METRICS)
        engine.instrument(self)
        waits = engine.store_stats.waits
        waits.observe = lambda took: numbers.observe("fairlane_db_pool_wait_seconds", took)

    async def text(
        self,
        *,
        leaving: bool = False,
        may_see: Callable[[str], bool] | None = None,
        more: Mapping[str, Values] = MappingProxyType({}),
    ) -> str:
        """`more`: gauges that the caller has read."""
        gauges = await self._gauges.read(leaving=leaving)
        return self._numbers.text({**gauges, **more}, may_see)

    # --- the engine --------------------------------------------------------------------------
    def submitted(self, outcomes: Iterable[tuple[Submission, SubmitOutcome]]) -> None:
        for submission, outcome in outcomes:
            if isinstance(outcome, SubmissionAccepted):
                self._numbers.add("fairlane_jobs_submitted_total", submission.common.tier)

    def started(self, leases: Iterable[Lease], took: float) -> None:
        self._numbers.observe("fairlane_claim_seconds", took)
        for lease in leases:
            self._numbers.add("fairlane_jobs_claimed_total", lease.service)
            if lease.fence == 1:
                waited = lease.waited / SECOND
                self._numbers.observe(
                    "fairlane_queue_wait_seconds", waited, lease.service, lease.tier
                )

    def foretold(self, service: str, tier: str, error: float) -> None:
        self._numbers.observe("fairlane_eta_error_seconds", abs(error), service, tier)

    def renewed(self, took: float) -> None:
        self._numbers.observe("fairlane_heartbeat_seconds", took)

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
        region = self._region(lease)
        numbers.add("fairlane_attempts_total", lease.service, region, str(settlement.outcome))
        if settlement.move is Move.RETRY and settlement.lane != lease.at.lane:
            numbers.add("fairlane_failovers_total", lease.service, region)
        if settlement.outcome is Outcome.LOST:
            numbers.add("fairlane_worker_heartbeat_failures_total")
        if settlement.move is Move.RETRY:
            fault = str(settlement.fault or "")
            numbers.add("fairlane_task_retries_total", lease.tier, fault)
        if lease.at.quality_check is not None:
            self._checked(settlement)
        if outcome.state in ENDED:
            self._ended(settlement, outcome.state)

    def _region(self, lease: Lease) -> str:
        """The label of the attempt's region. Its values are the configured regions, `none` and
        `other`: workers may name regions that are not configured."""
        if lease.region is None:
            return "none"
        return lease.region if lease.region in self._configured(lease.service) else "other"

    def _configured(self, service: str) -> Collection[str]:
        known = self._engine.catalog.services.get(service)
        return known.regions if known is not None else ()

    def _checked(self, settlement: Settlement) -> None:
        """Counts a quality check that has ended. One that will be tried again has not."""
        fault = settlement.fault
        if fault is not Fault.QUALITY and settlement.move in (Move.RETRY, Move.GIVE_BACK):
            return
        verdict = {None: "passed", Fault.QUALITY: "rejected"}.get(fault, "none")
        self._numbers.add("fairlane_quality_checks_total", settlement.lease.service, verdict)

    def _ended(self, settlement: Settlement, state: State) -> None:
        lease = settlement.lease
        took = (settlement.now - lease.queued_at) / SECOND
        self._numbers.observe("fairlane_task_duration_seconds", took, lease.tier, state)
        if settlement.error is not None:
            self._numbers.add("fairlane_tasks_failed_total", settlement.error.code)
        if state is State.DEAD:
            self._numbers.add("fairlane_tasks_dlq_total")

    def expired(self, leases: int) -> None:
        self._numbers.add("fairlane_lease_expired_total", by=leases)

    def promoted(self, levels: Iterable[tuple[str | None, str]]) -> None:
        for before, now in levels:
            if before is not None:
                self._numbers.add("fairlane_jobs_promoted_total", before, now)

    def corrected(self, jobs: int) -> None:
        self._numbers.add("fairlane_index_drift_total", by=jobs)

    # --- the door ----------------------------------------------------------------------------
    def answered(self, route: str, method: str, status: int, took: float) -> None:
        """A request, under its route pattern."""
        known = method if method in METHODS else "other"
        kind = CLASSES[min(status // 100, 5)]
        self._numbers.observe("fairlane_http_request_seconds", took, route, known, kind)

    def refused(self, status: int, code: str) -> None:
        """A refusal: of a whole request, or of one job in a batch."""
        if status in PUT_OFF:
            self._numbers.add("fairlane_shed_total", code)
        elif status == 401:
            self._numbers.add("fairlane_auth_failures_total")
