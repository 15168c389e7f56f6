"""Retries of the client SDK: which responses are retried, how often, and the back-off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairlane.client.errors import ApiError, Unreachable

T = TypeVar("T")

MAX_TRIES = 5
RETRY_STATUSES = frozenset({429, 502, 503, 504})
"""HTTP statuses after which the same request is repeated."""


async def with_retries(call: Callable[[], Awaitable[T]], tries: int) -> T:
    """The result of the call. It is repeated while the server does not answer or asks for it, each
    time after a longer pause."""
    for left in reversed(range(tries)):
        try:
            return await call()
        except (Unreachable, ApiError) as error:
            final = isinstance(error, ApiError) and error.status not in RETRY_STATUSES
            if final or not left:
                raise
            await asyncio.sleep(random.uniform(0.5, 1) * (tries - left))
    raise AssertionError("unreachable")
