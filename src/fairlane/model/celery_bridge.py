"""The Celery bridge: which services are tasks of a Celery fleet, and where its broker is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_QUEUE = "celery"
"""The queue of a Celery app that names none."""


@dataclass(frozen=True, slots=True)
class CeleryTask:
    """The name of a task as its workers know it, and the queue that they consume. `max_result` is
    bytes."""

    name: str
    queue: str = DEFAULT_QUEUE
    max_result: int = 8 << 20


@dataclass(frozen=True, slots=True)
class CeleryBridge:
    """The broker and the result backend of a fleet, and the task of each service. `start_timeout`
    (s): the longest wait of a sent task for a worker to start it."""

    broker_url: str = field(repr=False)
    result_backend: str = field(repr=False)
    tasks: Mapping[str, CeleryTask] = field(default_factory=dict)
    start_timeout: float = 60
    broker_transport_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    result_backend_transport_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
