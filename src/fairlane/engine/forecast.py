"""Forecasts of ETAs: from the position of a job, corrected by how wrong earlier ones were."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from fairlane.index.index import Standing
from fairlane.policy.estimate import FIRST_COST_MICROSECONDS
from fairlane.policy.eta import Calibration, Eta

MAX_PREDICTIONS = 10_000

USUAL_WEIGHT = 100
"""The newest look counts one part in so many of what a job usually takes: one long job must not
change what all who wait are told."""


class Waiting(NamedTuple):
    """What the ETA of a job depends on."""

    id: str
    service: str
    tier: str
    model: str
    ready_at: int


class ServiceRate(NamedTuple):
    """What serves it: how many slots, what jobs of this service took lately, whether a slot is
    free."""

    slots: int
    cost: int
    free: bool


class Group(NamedTuple):
    """Jobs that are overtaken alike: whoever has own work before them lets others go first, and a
    model that is in memory comes sooner than one that is not."""

    service: str
    tier: str
    behind_own: bool | None
    warm: bool | None

    def all(self) -> Group:
        """All of its tier."""
        return Group(self.service, self.tier, None, None)


class ToldEta(NamedTuple):
    at: int
    predicted: int
    p50: int
    group: Group


class UsualDuration(NamedTuple):
    """What a job of a service takes, and how many looks at it made this up."""

    looks: int
    value: int


class Forecasts:
    """Of one process. What is remembered of a job is what was said first."""

    def __init__(self) -> None:
        self._calibrations: dict[Group, Calibration] = {}
        self._told: dict[str, ToldEta] = {}
        self._usual: dict[str, UsualDuration] = {}
        self._models: dict[str, deque[str]] = {}

    def __bool__(self) -> bool:
        """Whether anybody has been told anything that is still to come."""
        return bool(self._told)

    def eta(self, job: Waiting, standing: Standing, serving: ServiceRate, now: int) -> Eta:
        """When it will start: as many jobs must end before as stand before it, and one more if
        nothing is free. Loads are part of what jobs cost; what better tiers will send meanwhile
        is part of past errors. Until its own time a job waits exactly that long."""
        ahead = standing.ahead + (0 if serving.free else 1)
        cost = self._usual[job.service].value if job.service in self._usual else serving.cost
        predicted = ahead * cost // max(1, serving.slots)
        delay = max(0, job.ready_at - now)
        warm = self._is_warm(job, serving.slots)
        group = Group(job.service, job.tier, standing.behind_own > 0, warm)
        eta = self._calibration(group).eta(predicted)
        if job.id not in self._told and len(self._told) < MAX_PREDICTIONS:
            self._told[job.id] = ToldEta(now + delay, predicted, eta.p50, group)
            self._learn(job.service, serving.cost)
        return Eta(delay + eta.p50, delay + eta.p90)

    def started(self, job: str, service: str, model: str, at: int) -> int | None:
        """It started: how much later than was said? None if nothing was."""
        models = self._models.get(service)
        if models is not None:
            models.append(model)
        told = self._told.pop(job, None)
        if told is None:
            return None
        for group in (told.group, told.group.all()):
            calibration = self._calibrations.setdefault(group, Calibration())
            calibration.learn(told.predicted, at - told.at)
        return at - told.at - told.p50

    def forget(self, job: str) -> None:
        """It will not start."""
        self._told.pop(job, None)

    def not_started(self, limit: int) -> dict[str, int]:
        """So many of those whose start is still to come, in turn, and when they were told."""
        found = {job: told.at for job, told in islice(self._told.items(), limit)}
        for job in found:
            self._told[job] = self._told.pop(job)
        return found

    def _learn(self, service: str, cost: int) -> None:
        """What jobs took lately, again and again, makes what they usually take."""
        if cost == FIRST_COST_MICROSECONDS:
            return  # a guess: none has ended yet
        number, usual = self._usual.get(service, UsualDuration(0, cost))
        number = min(number + 1, USUAL_WEIGHT)
        self._usual[service] = UsualDuration(number, usual + (cost - usual) // number)

    def _calibration(self, group: Group) -> Calibration:
        """Its own, or that of its tier while few of its like have started."""
        found = self._calibrations.get(group)
        if found is None or found.is_new():
            found = self._calibrations.get(group.all())
        return found or Calibration()

    def _is_warm(self, job: Waiting, slots: int) -> bool:
        """Whether its model is in memory somewhere: every slot keeps the one it ran last."""
        models = self._models.get(job.service)
        if models is None or models.maxlen != slots:
            models = self._models[job.service] = deque(models or (), slots)
        return job.model in models


def is_busy(standing: Standing) -> bool:
    """Whether a pool that it needs is full of what runs. One that is kept for calls that were cut
    off is free at a time that is known."""
    return any(reason.startswith("busy:") for reason in standing.reasons)
