"""Fairlane decides who gets the scarce AI capacity next, and loses nothing on the way."""

from fairlane.client import ApiError, AsyncClient, Client
from fairlane.client.shapes import JobRequest
from fairlane.client.slot import slot
from fairlane.compose import embedded
from fairlane.engine import Engine
from fairlane.engine.settle import Done, Failed, GivenBack
from fairlane.engine.submit import Caller
from fairlane.ledger.shapes import Filter
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.job import NewJob
from fairlane.model.service import Provider, Region, Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker as WorkerSpec
from fairlane.worker import Context, TaskFailed, Worker

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "AsyncClient",
    "Caller",
    "Catalog",
    "Client",
    "Context",
    "Done",
    "Engine",
    "Failed",
    "Fault",
    "Filter",
    "GivenBack",
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
