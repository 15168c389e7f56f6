"""Settings of load balancing for one Celery app."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

DEFAULT_QUEUES = 20
DEFAULT_PREFIX = "fairlane:celery:"
DEFAULT_RESERVE_AHEAD = 16

QUEUE_NAME = re.compile(r"[!#-\[\]-{}~]+")
"""A message of the broker is JSON, and its lease is read from it without decoding."""

Connect = Callable[[], Any]
"""Returns a new `redis.Redis` client."""


@dataclass(frozen=True, slots=True)
class Options:
    """`redis` is where the leases are: a URL, a function that returns a client, or None for the
    broker. Times are seconds."""

    queues: tuple[str, ...]
    only: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    weights: bool = False
    rebalance_retries: bool = False
    reserve_ahead: int = DEFAULT_RESERVE_AHEAD
    redis: str | Connect | None = None
    key_prefix: str = DEFAULT_PREFIX
    fair_queue: str = "fair"
    heartbeat_seconds: float = 10
    grace_seconds: float = 30
    settle_seconds: float = 5

    @property
    def version(self) -> str:
        """Changes with the list of queues: the store is then configured anew."""
        return f"{crc32('|'.join(self.queues).encode()):08x}{int(self.weights)}"

    def hashed(self, text: str) -> str:
        """The queue of a text, the same in every process."""
        return self.queues[crc32(text.encode()) % len(self.queues)]

    def selects(self, task_name: str) -> bool:
        """Whether tasks of this name are balanced."""
        return task_name not in self.exclude and (self.only is None or task_name in self.only)

    def counts(self, queue: str) -> bool:
        """Whether this queue has leases."""
        return queue in self.queues


def queue_names(queues: int | Sequence[str], prefix: str) -> tuple[str, ...]:
    names = tuple(f"{prefix}{n}" for n in range(queues)) if isinstance(queues, int) else (*queues,)
    if not names or len(set(names)) < len(names):
        raise ValueError("queues: a number above 0, or a list of different names")
    if wrong := [name for name in names if not QUEUE_NAME.fullmatch(name)]:
        raise ValueError(
            f"queues: a name is ASCII without space, |, quote or \\, unlike {wrong[0]!r}"
        )
    return names
