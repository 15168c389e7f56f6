"""Fairlane: a priority job queue and gateway for scarce AI capacity. These are its public names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairlane.compose import embedded
from fairlane.engine import Engine
from fairlane.engine.settle import Done, Failed, GivenBack
from fairlane.engine.submit import Caller
from fairlane.errors import FairlaneError, JobCancelled, JobDead, JobFailed
from fairlane.ledger.messages import Filter
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.credits import CreditSettings
from fairlane.model.file_result import FileResult
from fairlane.model.job import NewJob
from fairlane.model.service import Provider, Region, Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker as WorkerSpec

if TYPE_CHECKING:
    from fairlane.client import ApiError, AsyncClient, Client
    from fairlane.client.slot import slot
    from fairlane.client.types import JobRequest
    from fairlane.worker import Context, TaskFailed, Worker

__version__ = "0.1.0"

LATER = {
    "ApiError": "fairlane.client",
    "AsyncClient": "fairlane.client",
    "Client": "fairlane.client",
    "Context": "fairlane.worker",
    "JobRequest": "fairlane.client.types",
    "TaskFailed": "fairlane.worker",
    "Worker": "fairlane.worker",
    "slot": "fairlane.client.slot",
}
"""What speaks HTTP is imported when it is asked for: a queue in one process needs none of it."""

__all__ = [
    "ApiError",
    "AsyncClient",
    "Caller",
    "Catalog",
    "Client",
    "Context",
    "CreditSettings",
    "Done",
    "Engine",
    "Failed",
    "FairlaneError",
    "Fault",
    "FileResult",
    "Filter",
    "GivenBack",
    "JobCancelled",
    "JobDead",
    "JobFailed",
    "JobRequest",
    "Limits",
    "NewJob",
    "Provider",
    "Region",
    "Service",
    "State",
    "TaskFailed",
    "Tier",
    "Tiers",
    "Worker",
    "WorkerSpec",
    "embedded",
    "slot",
]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LATER[name]), name)
