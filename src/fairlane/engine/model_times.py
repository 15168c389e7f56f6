"""Learnt load and work times of models: what a completed attempt says of its model, and reports on
the models of a service."""

from __future__ import annotations

from functools import partial

import orjson

from fairlane.engine.core import Core
from fairlane.engine.single_flight import SingleFlight
from fairlane.index.index import ModelReport, ModelSample
from fairlane.ledger.messages import Settlement
from fairlane.model.job import Json
from fairlane.model.service import Affinity
from fairlane.units import SECOND

LOAD_METRIC = "load_seconds"
"""The metric in which a worker or a service says how many seconds this attempt took to load its
model."""

MAX_MODELS = 256
"""The most models of a service that are reported."""

MAX_REPORT_AGE_MICROSECONDS = SECOND
MAX_REPORTS = 1_000


class ModelReports:
    """Reports on models, each read from the index no more than once a second by this process."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._reads = SingleFlight[ModelReport](core.now, MAX_REPORT_AGE_MICROSECONDS, MAX_REPORTS)

    async def get(self, service: str, tenant: str | None) -> ModelReport:
        read = partial(self._core.index.models, service, tenant, MAX_MODELS)
        report = await self._reads.get((service, tenant), read)
        loaded = {name: each for name, each in self._core.loaded.items() if each.model}
        return report._replace(workers=loaded)


def samples_of(core: Core, settlement: Settlement, elapsed: int) -> list[ModelSample]:
    """What this completed attempt of a job with a model teaches. `elapsed` (µs) includes the load.
    A service without model affinity learns nothing."""
    lease = settlement.lease
    if core.service(lease.service).affinity is Affinity.NONE:
        return []
    metrics = orjson.loads(settlement.metrics) if settlement.metrics is not None else None
    load = load_of(metrics, elapsed)
    return [ModelSample(lease.service, lease.model, load, elapsed - (load or 0), lease.tenant)]


def load_of(metrics: Json, elapsed: int) -> int | None:
    """The load time (µs) in these metrics. None if they have none, or none that can be true."""
    said = metrics.get(LOAD_METRIC) if isinstance(metrics, dict) else None
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    return round(said * SECOND) if 0 <= said * SECOND <= elapsed else None
