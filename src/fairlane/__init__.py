"""Fairlane: a priority job queue and gateway for scarce AI capacity. These are its public names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlane.client import ApiError, AsyncClient, Client
    from fairlane.client.slot import slot
    from fairlane.client.types import JobRequest
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
    from fairlane.worker import Context, TaskFailed, Worker

__version__ = "0.1.0"

MODULES = {
    "ApiError": "fairlane.client",
    "AsyncClient": "fairlane.client",
    "Caller": "fairlane.engine.submit",
    "Catalog": "fairlane.model.catalog",
    "Client": "fairlane.client",
    "Context": "fairlane.worker",
    "CreditSettings": "fairlane.model.credits",
    "Done": "fairlane.engine.settle",
    "Engine": "fairlane.engine",
    "Failed": "fairlane.engine.settle",
    "FairlaneError": "fairlane.errors",
    "Fault": "fairlane.model.attempt",
    "FileResult": "fairlane.model.file_result",
    "Filter": "fairlane.ledger.messages",
    "GivenBack": "fairlane.engine.settle",
    "JobCancelled": "fairlane.errors",
    "JobDead": "fairlane.errors",
    "JobFailed": "fairlane.errors",
    "JobRequest": "fairlane.client.types",
    "Limits": "fairlane.model.catalog",
    "NewJob": "fairlane.model.job",
    "Provider": "fairlane.model.service",
    "Region": "fairlane.model.service",
    "Service": "fairlane.model.service",
    "State": "fairlane.model.state",
    "TaskFailed": "fairlane.worker",
    "Tier": "fairlane.model.tier",
    "Tiers": "fairlane.model.tier",
    "Worker": "fairlane.worker",
    "WorkerSpec": "fairlane.model.worker",
    "embedded": "fairlane.compose",
    "slot": "fairlane.client.slot",
}
"""The module of each public name. It is imported when the name is first used: a client loads no
engine, and the command line starts without either."""

NAMES_IN_MODULES = {"WorkerSpec": "Worker"}
"""Public names that differ from the name in their module."""

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
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(MODULES[name]), NAMES_IN_MODULES.get(name, name))
    globals()[name] = found
    return found
