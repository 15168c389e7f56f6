"""What works beside the API, or without it: calls to services, webhooks, tiers from elsewhere."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import typer
import uvloop

from fairlane.api.logs import log_to
from fairlane.api.server import Drain
from fairlane.compose import opened
from fairlane.config.settings import Settings
from fairlane.engine import Engine
from fairlane.errors import FairlaneError
from fairlane.webhooks import Egress, WebhookSender


@asynccontextmanager
async def calling(engine: Engine, settings: Settings) -> AsyncIterator[Drain]:
    """Runs while the block does. What is yielded ends the calls within a grace time. What speaks
    HTTP is imported where it is needed: a queue whose workers pull needs none of it."""
    async with AsyncExitStack() as stack:
        source = settings.priority
        if source is not None:
            from fairlane.priority import PriorityService

            await stack.enter_async_context(
                PriorityService(
                    engine,
                    source.url,
                    fallback=source.fallback,
                    headers=source.headers,
                    timeout=source.timeout,
                    fresh=source.cache,
                )
            )
        await stack.enter_async_context(WebhookSender(engine, Egress.of(settings)))
        if not settings.endpoints:
            yield _nothing
            return
        from fairlane.dispatch import Dispatcher

        server = settings.server
        dispatcher = Dispatcher(engine, settings.endpoints, lease=server.lease, grace=server.grace)
        await stack.enter_async_context(dispatcher)
        yield dispatcher.drain


async def _nothing(_: float) -> None:
    """Nobody calls."""


def run(settings: Settings) -> None:
    """Until a signal comes: then running calls get their time."""
    try:
        uvloop.run(_dispatch(settings))
    except (FairlaneError, OSError) as error:
        typer.echo(f"fairlane: {error}", err=True)
        raise typer.Exit(1) from None


async def _dispatch(settings: Settings) -> None:
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    async with await opened(settings) as engine, calling(engine, settings) as drain:
        log_to()
        names = ", ".join(sorted(settings.endpoints)) or "nothing: no service has a url"
        typer.echo(f"Fairlane: dispatching to {names} ({settings.source})")
        await over.wait()
        await drain(settings.server.grace)
