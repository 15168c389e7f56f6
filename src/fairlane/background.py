"""Background tasks of the event loop, and how they end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


async def end(work: asyncio.Task[Any] | None) -> None:
    """Cancelled and over, if it was ever begun."""
    if work is not None:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
