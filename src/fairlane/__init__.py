"""Fairlane decides who gets the scarce AI capacity next, and loses nothing on the way."""

from fairlane.compose import embedded
from fairlane.engine import Engine
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.job import NewJob
from fairlane.model.service import Provider, Region, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Catalog",
    "Engine",
    "Limits",
    "NewJob",
    "Provider",
    "Region",
    "Service",
    "Tier",
    "Tiers",
    "Worker",
    "embedded",
]
