"""A webhook: the delivery that is due when a job with a callback has ended."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fairlane.model.job import Error
from fairlane.model.state import State


class Delivery(StrEnum):
    """How a delivery ended. `gone`: the receiver asked for no more deliveries (HTTP 410)."""

    DELIVERED = "delivered"
    FAILED = "failed"
    BLOCKED = "blocked"
    GONE = "gone"


class Webhook(NamedTuple):
    """`id` is the same at every attempt. `tries` counts failed attempts. Times are microseconds."""

    id: str
    job: str
    tenant: str
    url: str
    state: State
    name: str
    user: str | None
    tags: tuple[str, ...]
    error: Error | None
    ended_at: int
    tries: int
