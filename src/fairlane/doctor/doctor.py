"""The doctor: runs the table of checks over facts that it gathers from a running engine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from fairlane.background import end
from fairlane.config.settings import Settings
from fairlane.doctor.checks import CHECKS, QUICK
from fairlane.doctor.facts import Facts
from fairlane.doctor.findings import Check, Finding, FindingVerdict, judged
from fairlane.doctor.gather import CeleryLoad, Gatherer
from fairlane.doctor.job import explained
from fairlane.engine import Engine
from fairlane.engine.single_flight import SingleFlight
from fairlane.units import SECOND

log = logging.getLogger("fairlane.doctor")

ALERT_PERIOD_SECONDS = 5.0
EXAMINATION_MAX_AGE_MICROSECONDS = SECOND
MAX_EXAMINATIONS = 100


class Examination(NamedTuple):
    """What an examination found, and how many seconds it took."""

    findings: list[Finding]
    seconds: float
    facts: Facts


class Alerts(NamedTuple):
    """Findings that are not ok: all, and those that every tenant may see. A task type of one tenant
    is not shown to others."""

    all: list[Finding]
    public: list[Finding]


class Doctor:
    """Simultaneous callers with the same question share one examination, which is at most a second
    old."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        *,
        celery: CeleryLoad | None = None,
        wall_clock: Callable[[], int] | None = None,
    ) -> None:
        self._engine = engine
        self.gatherer = Gatherer(engine, settings, celery=celery, wall_clock=wall_clock)
        now = engine.clock.now
        self._examinations = SingleFlight[Examination](
            now, EXAMINATION_MAX_AGE_MICROSECONDS, MAX_EXAMINATIONS
        )
        self._alerts = Alerts([], [])
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")

    async def examine(self, only: Collection[str] = (), service: str | None = None) -> Examination:
        """Run all checks, or `only` these. With a service: only findings about this service and
        about the whole system that are not ok."""
        key = (frozenset(only), service)
        return await self._examinations.get(key, lambda: self._examine(only, service))

    async def _examine(self, only: Collection[str], service: str | None) -> Examination:
        chosen = [each for each in CHECKS if not only or each.name in only]
        found = await self._run(chosen)
        if service is None:
            return found
        about = [
            each
            for each in found.findings
            if each.subject == service
            or (each.verdict is not FindingVerdict.OK and not self._is_service(each.subject))
        ]
        return found._replace(findings=about)

    def _is_service(self, subject: str) -> bool:
        return self._engine.catalog.knows(subject) or subject in self._engine.catalog.services

    def latest_alerts(self) -> Alerts:
        """What was not ok at the last look, by the checks whose cost does not grow with the number
        of jobs. Returns at once; if the last look is older than 5 s, it starts another."""
        now = time.monotonic()
        if self._looking is None and now - self._looked_at >= ALERT_PERIOD_SECONDS:
            self._looked_at = now
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(self._looked)
        return self._alerts

    async def stop(self) -> None:
        await end(self._looking)

    async def _look(self) -> None:
        found = (await self._run(QUICK)).findings
        alerts = [each for each in found if each.verdict is not FindingVerdict.OK]
        public = {each.name for each in QUICK if each.public}
        known = self._engine.catalog.services
        self._alerts = Alerts(
            alerts,
            [
                each
                for each in alerts
                if each.check in public
                and (each.subject in known or not self._is_service(each.subject))
            ],
        )

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled() and task.exception() is not None:
            log.error("the checks for alerts failed", exc_info=task.exception())

    async def job(self, job_id: str, tenant: str | None = None) -> Examination:
        """Why a job does not run, in the words of `/explain`, and what is wrong with its
        service."""
        began = time.perf_counter()
        seen = await self._engine.view(job_id, tenant)
        found = await self.examine(service=seen.job.current.service)
        indexed = await self._engine.inspection.is_indexed(seen.job)
        findings = explained(seen, await self.gatherer.here(), indexed=indexed)
        if seen.job.live:
            known = {each.check for each in findings}
            findings += [
                each
                for each in found.findings
                if each.verdict is not FindingVerdict.OK and each.check not in known
            ]
        return Examination(findings, time.perf_counter() - began, found.facts)

    async def _run(self, checks: Sequence[Check]) -> Examination:
        began = time.perf_counter()
        facts = await self.gatherer.facts(kind for each in checks for kind in each.needs)
        return Examination(judged(checks, facts), time.perf_counter() - began, facts)
