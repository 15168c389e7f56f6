"""What works beside the API, or without it: calls to services, webhooks, tiers from elsewhere."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import typer
import uvloop

from fairlane.api.logs import log_to
from fairlane.api.server import Drain
from fairlane.background import end
from fairlane.cli.wait_for_stores import in_one_line, started
from fairlane.compose import opened
from fairlane.config.settings import Settings
from fairlane.engine import Engine
from fairlane.webhooks import SsrfGuard, WebhookSender

if TYPE_CHECKING:
    from fairlane.dispatch import Dispatcher


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
        await stack.enter_async_context(WebhookSender(engine, SsrfGuard.of(settings)))
        if not settings.endpoints:
            yield _nothing
            return
        from fairlane.dispatch import Dispatcher

        server = settings.server
        dispatcher = Dispatcher(engine, settings.endpoints, lease=server.lease, grace=server.grace)
        await stack.enter_async_context(dispatcher)
        yield partial(_finish, dispatcher)


async def _nothing(_: float) -> None:
    """Nobody calls."""
    _say("leaving")


async def _finish(dispatcher: Dispatcher, grace: float) -> None:
    calls = dispatcher.running
    what = f"finishing {calls} call{'s' if calls > 1 else ''}, up to {grace:g} s"
    _say(f"{what}; once more to leave at once" if calls else "leaving")
    await dispatcher.drain(grace)


def _say(line: str) -> None:
    with suppress(OSError):  # who has read it may have left before
        typer.echo(line)


def run(settings: Settings) -> None:
    """Until a signal comes: then running calls get their time, until another comes."""
    log_to()
    with in_one_line():
        uvloop.run(_dispatch(settings))


async def _dispatch(settings: Settings) -> None:
    asked, again = asyncio.Event(), asyncio.Event()

    def hear() -> None:
        (again if asked.is_set() else asked).set()

    log_to(level=settings.server.log_level, form=settings.server.log_format)
    stores = started(lambda: opened(settings), settings.server.wait_for_stores, by_others=True)
    async with stores as engine, calling(engine, settings) as drain:
        for number in (signal.SIGTERM, signal.SIGINT):  # before, a signal simply ends it
            asyncio.get_running_loop().add_signal_handler(number, hear)
        names = ", ".join(sorted(settings.endpoints)) or "nothing: no service has a url"
        typer.echo(f"Fairlane: dispatching to {names} ({settings.source})")
        await asked.wait()
        leaving = asyncio.ensure_future(drain(settings.server.grace))
        hurrying = asyncio.create_task(again.wait())
        await asyncio.wait((leaving, hurrying), return_when=asyncio.FIRST_COMPLETED)
        await end(leaving)
        await end(hurrying)
