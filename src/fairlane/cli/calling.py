"""Background roles of `serve` and `dispatch`: dispatcher, webhooks, Priority Service client."""

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
async def calling(
    engine: Engine, settings: Settings, tiers: frozenset[str] | None = None
) -> AsyncIterator[Drain]:
    """Runs the roles while the block runs. With `tiers`, services are called only for jobs of these
    tiers. Yields a drain: it ends running calls within a grace
    time in seconds. HTTP modules are imported where they are needed: a queue with pull workers
    only does not need them."""
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
        if not settings.endpoints and settings.celery_bridge is None:
            yield _leave
            return
        from fairlane.dispatch import Dispatcher

        server = settings.server
        dispatcher = Dispatcher(
            engine,
            settings.endpoints,
            celery=settings.celery_bridge,
            tiers=tiers,
            lease=server.lease,
            grace=server.grace,
        )
        await stack.enter_async_context(dispatcher)
        yield partial(_finish, dispatcher)


async def _leave(_: float) -> None:
    """The drain of a process without a dispatcher: no call has to end."""
    _say("shutting down")


async def _finish(dispatcher: Dispatcher, grace: float) -> None:
    calls = dispatcher.running
    what = f"finishing {calls} call{'s' if calls > 1 else ''}, up to {grace:g} s"
    _say(f"{what}; send the signal again to stop at once" if calls else "shutting down")
    await dispatcher.drain(grace)


def _say(line: str) -> None:
    with suppress(OSError):  # the reader of a pipe may have closed it
        typer.echo(line)


def run(settings: Settings, tiers: frozenset[str] | None) -> None:
    """Runs until a signal. Then running calls get their grace time; a second signal ends it."""
    log_to()
    with in_one_line():
        uvloop.run(_dispatch(settings, tiers))


async def _dispatch(settings: Settings, tiers: frozenset[str] | None) -> None:
    asked, again = asyncio.Event(), asyncio.Event()

    def hear() -> None:
        (again if asked.is_set() else asked).set()

    log_to(level=settings.server.log_level, form=settings.server.log_format)
    stores = started(lambda: opened(settings), settings.server.wait_for_stores, by_others=True)
    async with stores as engine, calling(engine, settings, tiers) as drain:
        for number in (signal.SIGTERM, signal.SIGINT):  # until here a signal ends the process
            asyncio.get_running_loop().add_signal_handler(number, hear)
        tasks = settings.celery_bridge.tasks if settings.celery_bridge else {}
        named = ", ".join(sorted([*settings.endpoints, *tasks]))
        names = named or "nothing: no service has a url or a celery_task"
        only = f", only jobs of {', '.join(sorted(tiers))}" if tiers else ""
        typer.echo(f"Fairlane: dispatching to {names}{only} ({settings.source})")
        await asked.wait()
        leaving = asyncio.ensure_future(drain(settings.server.grace))
        hurrying = asyncio.create_task(again.wait())
        await asyncio.wait((leaving, hurrying), return_when=asyncio.FIRST_COMPLETED)
        await end(leaving)
        await end(hurrying)
