"""What the dashboard shows beside the engine's state: alerts of the doctor, Celery loads, and the
speed of a demo."""

from __future__ import annotations

import time

from fairlane.api.celery_loads import CeleryLoadSource
from fairlane.dashboard.frame import Surroundings
from fairlane.doctor import Doctor
from fairlane.doctor.findings import Finding
from fairlane.errors import StoreAway

CELERY_SECONDS = 5.0


class DashboardSurroundings:
    def __init__(self, celery: CeleryLoadSource, doctor: Doctor, simulated_speed: float) -> None:
        self._celery, self._doctor, self._speed = celery, doctor, simulated_speed
        self._loads: dict[str, dict[str, int]] | None = None
        self._read_at = float("-inf")

    async def read(self) -> Surroundings:
        if self._celery.is_configured and time.monotonic() - self._read_at > CELERY_SECONDS:
            self._read_at = time.monotonic()
            try:
                found = await self._celery.read()
                self._loads = {queue: load._asdict() for queue, load in found.items()}
            except StoreAway:
                self._loads = None
        alerts = self._doctor.latest_alerts()
        return Surroundings(
            self._speed,
            tuple(alert(each) for each in alerts.all),
            self._loads,
            tuple(alert(each) for each in alerts.public),
        )


def alert(finding: Finding) -> dict[str, str]:
    """A finding as the dashboard shows it."""
    return {
        "check": finding.check,
        "verdict": finding.verdict.value,
        "subject": finding.subject,
        "text": finding.text,
        "command": finding.command,
        "page": finding.page,
    }
