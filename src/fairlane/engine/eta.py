"""ETA forecasts: computed from the position of a job, calibrated by the errors of past
forecasts."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from fairlane.index.index import Standing
from fairlane.policy.estimate import FIRST_COST_MICROSECONDS
from fairlane.policy.eta_calibration import Calibration, Eta

MAX_PREDICTIONS = 10_000

USUAL_WEIGHT = 100
"""Weight of history in the moving average of a job's duration: the newest value counts 1/100. One
long job must not change the ETAs of all waiting jobs."""


class Waiting(NamedTuple):
    """The properties of a waiting job that its ETA depends on."""

    id: str
    service: str
    tier: str
    model: str
    ready_at: int


class ServiceRate(NamedTuple):
    """The capacity of a service: its slots, the recent duration of its jobs (µs), and whether a
    slot is free."""

    slots: int
    cost: int
    free: bool


class Group(NamedTuple):
    """Jobs that share one calibration, because other jobs overtake them equally often. Jobs of
    other users overtake a job that waits behind jobs of its own user (`behind_own`). A job whose
    model is in memory (`warm`) starts sooner than one whose model has to be loaded."""

    service: str
    tier: str
    behind_own: bool | None
    warm: bool | None

    def all(self) -> Group:
        """The group of all jobs of this service and tier."""
        return Group(self.service, self.tier, None, None)


class ToldEta(NamedTuple):
    at: int
    predicted: int
    p50: int
    p90: int
    group: Group


class EtaOutcome(NamedTuple):
    """How good an ETA was: by how much the job started later than its p50 (µs), and whether it
    started by its p90."""

    error: int
    kept: bool


class UsualDuration(NamedTuple):
    """The usual duration of a job of a service (µs), and how many values it averages."""

    looks: int
    value: int


class Forecasts:
    """The forecasts of one process. Of each job only the first ETA that was given is kept."""

    def __init__(self) -> None:
        self._calibrations: dict[Group, Calibration] = {}
        self._told: dict[str, ToldEta] = {}
        self._usual: dict[str, UsualDuration] = {}
        self._models: dict[str, deque[str]] = {}

    def __bool__(self) -> bool:
        """Whether an ETA was given for a job that has not started yet."""
        return bool(self._told)

    def eta(self, job: Waiting, standing: Standing, serving: ServiceRate, now: int) -> Eta:
        """The time until this job starts (µs). The jobs ahead of it must end first, and one more if
        no slot is free. Model loads are part of the durations. Later arrivals of better tiers are
        part of the calibration. A job with a `ready_at` in the future also waits until then."""
        predicted = self._predicted(job.service, standing.ahead, serving)
        delay = max(0, job.ready_at - now)
        warm = self._is_warm(job.service, job.model, serving.slots)
        group = Group(job.service, job.tier, standing.behind_own > 0, warm)
        eta = self._calibration(group).eta(predicted)
        if job.id not in self._told and len(self._told) < MAX_PREDICTIONS:
            self._told[job.id] = ToldEta(now + delay, predicted, eta.p50, eta.p90, group)
            self._learn(job.service, serving.cost)
        return Eta(delay + eta.p50, delay + eta.p90)

    def for_new_job(
        self, service: str, tier: str, model: str, ahead: int, serving: ServiceRate
    ) -> Eta:
        """The time until a job with so many jobs ahead of it would start (µs). It is given for no
        particular job, so nothing is learnt from it."""
        warm = self._is_warm(service, model, serving.slots)
        calibration = self._calibration(Group(service, tier, behind_own=False, warm=warm))
        return calibration.eta(self._predicted(service, ahead, serving))

    def _predicted(self, service: str, ahead: int, serving: ServiceRate) -> int:
        cost = self._usual[service].value if service in self._usual else serving.cost
        return (ahead + (0 if serving.free else 1)) * cost // max(1, serving.slots)

    def started(self, job: str, service: str, model: str, at: int) -> EtaOutcome | None:
        """Record the start of a job. Returns how good its ETA was; None if no ETA was given."""
        models = self._models.get(service)
        if models is not None:
            models.append(model)
        told = self._told.pop(job, None)
        if told is None:
            return None
        for group in (told.group, told.group.all()):
            calibration = self._calibrations.setdefault(group, Calibration())
            calibration.learn(told.predicted, at - told.at)
        waited = at - told.at
        return EtaOutcome(waited - told.p50, waited <= told.p90)

    def forget(self, job: str) -> None:
        """Remove the ETA of a job that will not start."""
        self._told.pop(job, None)

    def not_started(self, limit: int) -> dict[str, int]:
        """Up to `limit` jobs that have an ETA and have not started, in rotation, each with the time
        its ETA counts from."""
        found = {job: told.at for job, told in islice(self._told.items(), limit)}
        for job in found:
            self._told[job] = self._told.pop(job)
        return found

    def _learn(self, service: str, cost: int) -> None:
        """Add the recent duration (µs) to the moving average of this service."""
        if cost == FIRST_COST_MICROSECONDS:
            return  # the initial guess: no job has ended yet
        number, usual = self._usual.get(service, UsualDuration(0, cost))
        number = min(number + 1, USUAL_WEIGHT)
        self._usual[service] = UsualDuration(number, usual + (cost - usual) // number)

    def _calibration(self, group: Group) -> Calibration:
        """The calibration of this group, or of its tier while few jobs of the group have
        started."""
        found = self._calibrations.get(group)
        if found is None or found.is_new():
            found = self._calibrations.get(group.all())
        return found or Calibration()

    def _is_warm(self, service: str, model: str, slots: int) -> bool:
        """Whether the model is probably in memory: each slot keeps the model that it ran last."""
        models = self._models.get(service)
        if models is None or models.maxlen != slots:
            models = self._models[service] = deque(models or (), slots)
        return model in models


def is_busy(standing: Standing) -> bool:
    """Whether running jobs fill a pool that the job needs. Slots that are kept for calls that were
    cut off do not count: the time at which they become free is known."""
    return any(reason.startswith("busy:") for reason in standing.reasons)
