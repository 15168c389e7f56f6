"""Serialization of workers and settings as JSON, for both stores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from fairlane.ledger.messages import Setting
from fairlane.ledger.rows import dumps, loads
from fairlane.model.job import Json
from fairlane.model.step import RetryTerms
from fairlane.model.worker import Worker, WorkerState


def worker_spec(worker: Worker) -> str:
    spec: dict[str, Json] = {
        "services": sorted(worker.services) if worker.services is not None else None,
        "region": worker.region,
        "capabilities": sorted(worker.capabilities),
        "tiers": sorted(worker.tiers) if worker.tiers is not None else None,
        "capacity": worker.capacity,
        "heartbeat": worker.heartbeat,
        "version": worker.version,
        "key": worker.key,
        "in_process": worker.in_process,
    }
    if worker.tasks:  # older versions do not know this field
        spec["tasks"] = {name: list(terms) for name, terms in worker.tasks.items()}
    if worker.regions:
        spec["regions"] = list(worker.regions)
    if worker.name:
        spec["name"] = worker.name
    return dumps(spec)


def workers(found: Iterable[Iterable[Any]]) -> list[tuple[Worker, int]]:
    """Workers from rows of (id, spec, state, heartbeat_at)."""
    return [
        (Worker(id=worker_id, state=WorkerState(state), **_spec(text)), at)
        for worker_id, text, state, at in found
    ]


FIELDS = frozenset(field.name for field in fields(Worker))


def _spec(text: str) -> dict[str, Json]:
    """The fields of a worker. Those that only a newer version knows are left out."""
    spec: dict[str, Json] = {name: value for name, value in loads(text).items() if name in FIELDS}
    for name in ("services", "capabilities", "tiers"):
        if spec[name] is not None:
            spec[name] = frozenset(spec[name])
    if "regions" in spec:
        spec["regions"] = tuple(spec["regions"])
    if "tasks" in spec:
        spec["tasks"] = {
            name: RetryTerms(max_retries, tuple(backoff), timeout)
            for name, (max_retries, backoff, timeout) in spec["tasks"].items()
        }
    return spec


def changes(found: Iterable[Iterable[Any]]) -> dict[str, Setting]:
    """Settings from rows of (name, value, file_value)."""
    return {name: Setting(loads(value), loads(file_value)) for name, value, file_value in found}
