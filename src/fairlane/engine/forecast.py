"""When waiting jobs will start: told from where they stand, corrected by how wrong it was."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.index.index import Standing
from fairlane.policy.eta import Ahead, Calibration, Eta, predict

MOST_PREDICTIONS = 10_000


class Waiting(NamedTuple):
    """What the ETA of a job depends on."""

    id: str
    service: str
    tier: str
    ready_at: int


class Serving(NamedTuple):
    """What serves it: how many slots, what a job of this service takes, whether a slot is free."""

    slots: int
    cost: int
    free: bool


class Forecasts:
    """Of one process. What is remembered of a job is what was said first."""

    def __init__(self) -> None:
        self._calibrations: dict[tuple[str, str], Calibration] = {}
        self._predictions: dict[str, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        """Whether anybody has been told anything."""
        return bool(self._predictions)

    def eta(self, job: Waiting, standing: Standing, serving: Serving, now: int) -> Eta:
        """When it will start: as many jobs must end before as stand before it, and one more if
        nothing is free. Loads are part of what jobs cost; what better tiers will send meanwhile
        is part of past errors."""
        ahead = max(0, standing.position - 1) + (0 if serving.free else 1)
        predicted = predict(Ahead(ahead * serving.cost, serving.slots))
        predicted += max(0, job.ready_at - now)
        calibration = self._calibrations.setdefault((job.service, job.tier), Calibration())
        if job.id not in self._predictions:
            self._predictions[job.id] = (now, predicted)
            if len(self._predictions) > MOST_PREDICTIONS:
                del self._predictions[next(iter(self._predictions))]
        return calibration.eta(predicted)

    def started(self, job: str, service: str, tier: str, at: int) -> None:
        """It started: how wrong was what was said?"""
        told = self._predictions.pop(job, None)
        calibration = self._calibrations.get((service, tier))
        if told is not None and calibration is not None:
            said_at, predicted = told
            calibration.learn(predicted, at - said_at)


def is_busy(standing: Standing) -> bool:
    """Whether a pool that it needs is full."""
    return any(reason.startswith("busy:") for reason in standing.reasons)
