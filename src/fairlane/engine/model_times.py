"""Learnt load and work times of models: what a completed attempt says of its model."""

from __future__ import annotations

import orjson

from fairlane.engine.core import Core
from fairlane.index.index import ModelSample
from fairlane.ledger.messages import Settlement
from fairlane.model.job import Json
from fairlane.model.service import Affinity
from fairlane.units import SECOND

LOAD_METRIC = "load_seconds"
"""The metric in which a worker or a service says how many seconds this attempt took to load its
model."""


def samples_of(core: Core, settlement: Settlement, elapsed: int) -> list[ModelSample]:
    """What this completed attempt of a job with a model teaches. `elapsed` (µs) includes the load.
    A service without model affinity learns nothing."""
    lease = settlement.lease
    if core.service(lease.service).affinity is Affinity.NONE:
        return []
    metrics = orjson.loads(settlement.metrics) if settlement.metrics is not None else None
    load = load_of(metrics, elapsed)
    return [ModelSample(lease.service, lease.model, load, elapsed - (load or 0))]


def load_of(metrics: Json, elapsed: int) -> int | None:
    """The load time (µs) in these metrics. None if they have none, or none that can be true."""
    said = metrics.get(LOAD_METRIC) if isinstance(metrics, dict) else None
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    return round(said * SECOND) if 0 <= said * SECOND <= elapsed else None
