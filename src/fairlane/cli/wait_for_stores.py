"""Startup retries: waits for PostgreSQL and Redis when a process starts, up to a time limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import typer

from fairlane.engine import Engine
from fairlane.errors import FairlaneError, NotReady, NotSetUp, SetupError, StoreAway, is_store_error

log = logging.getLogger("fairlane")

PAUSE_SECONDS = 0.5
"""Pause between two attempts to connect."""

T = TypeVar("T")


@contextmanager
def in_one_line() -> Iterator[None]:
    """Prints any error that ends the process in one line and exits with 1."""
    try:
        yield
    except typer.Exit:
        raise
    except (FairlaneError, OSError) as error:
        typer.echo(f"fairlane: {error}", err=True)
        raise typer.Exit(1) from None
    except Exception as error:
        if is_store_error(error):
            typer.echo(f"fairlane: a store went away: {error}", err=True)
        else:
            log.exception("the process ended by an internal error; please report it")
        raise typer.Exit(1) from None


@asynccontextmanager
async def started(
    opened: Callable[[], Awaitable[Engine]], wait: float, *, by_others: bool = False
) -> AsyncIterator[Engine]:
    """The started engine. `by_others`: another process creates the schema and stores the settings,
    and this call waits for that as well."""

    async def start() -> Engine:
        engine = await opened()
        await engine.start()
        return engine

    engine = await retry_until_ready(start, wait, by_others=by_others)
    try:
        yield engine
    finally:
        await engine.stop()


async def retry_until_ready(
    attempt: Callable[[], Awaitable[T]], wait: float, *, by_others: bool = False
) -> T:
    """Repeats `attempt` for up to `wait` seconds and logs the reason. Then it raises SetupError."""
    loop = asyncio.get_running_loop()
    until, said = 0.0, ""
    while True:
        try:
            return await attempt()
        except Exception as error:
            reason = _reason(error, by_others=by_others)
            if reason is None:
                raise
            until = until or loop.time() + wait  # counted from the end of the first attempt
            left = until - loop.time()
            if left <= 0:
                waited = f" (waited {wait:g} s: --wait-for-stores)" if wait else ""
                raise SetupError(f"{reason}{waited}") from error
        if reason != said:
            log.warning("%s; waiting up to %.0f s", reason, left)
            said = reason
        await asyncio.sleep(min(PAUSE_SECONDS, left))


def _reason(error: Exception, *, by_others: bool) -> str | None:
    """The reason to wait, or None if waiting does not help."""
    match error:
        case StoreAway() | NotReady():
            return str(error)
        case NotSetUp():
            return str(error) if by_others else None
        case _ if is_store_error(error):
            return f"a store went away: {str(error) or type(error).__name__}"
        case _:
            return None
