"""`fairlane echo`: stands in for the configured services and returns their input. It is for a first
try, before the real services and workers exist."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import typer
import uvloop

from fairlane.api.logs import log_to
from fairlane.background import end
from fairlane.cli.example import EXAMPLE, stands_in
from fairlane.config.settings import Settings
from fairlane.demo.services import PASSED, SimulatedExecution, SimulatedService
from fairlane.errors import FairlaneError
from fairlane.model.service import Executor
from fairlane.worker import Context, Worker


class Address(NamedTuple):
    """The URL of a service in one region."""

    service: str
    region: str
    url: str
    limit: int


class StandIn(NamedTuple):
    """The services to stand in for: all, or those of one region. `seconds`: how long a called
    service takes."""

    settings: Settings
    region: str | None = None
    seconds: float = 0


def run(stand_in: StandIn, url: str, key: str | None) -> None:
    """Runs until a signal."""
    log_to()
    try:
        uvloop.run(_answer(stand_in, url, key))
    except (FairlaneError, OSError) as error:
        typer.echo(f"fairlane: {error}", err=True)
        raise typer.Exit(1) from None


async def _answer(stand_in: StandIn, url: str, key: str | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    workers = list(_workers(stand_in))
    async with AsyncExitStack() as stack:
        lines = [line async for line in _called(stand_in, stack)]
        names = sorted({name for worker in workers for name in worker.offer.task_types or ()})
        if names:
            lines.append(f"runs {', '.join(names)} for {url}")
        for line in lines or ["has nothing to do: the settings have no http or pull service"]:
            typer.echo(f"echo  {line}")
        working = [asyncio.create_task(worker.serve(url, key)) for worker in workers]
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([stopping, *working], return_when=asyncio.FIRST_COMPLETED)
        for worker in workers:
            worker.drain()
        await end(stopping)
        await asyncio.gather(*working)


# --- services that the dispatcher calls ----------------------------------------------------------
async def _called(stand_in: StandIn, stack: AsyncExitStack) -> AsyncIterator[str]:
    for each in _addresses(stand_in.settings):
        if stand_in.region not in (None, each.region):
            continue
        place = f"{each.service} in {each.region}" if each.region else each.service
        if not stands_in(each.url):
            yield f"cannot stand in for {place}: {each.url} is not a port of this machine"
            continue
        service = SimulatedService(each.service, each.limit, work=_echo_after(stand_in.seconds))
        await stack.enter_async_context(service.serving(urlsplit(each.url).port or 80))
        yield f"stands in for {place} at {each.url}"


def _addresses(settings: Settings) -> Iterator[Address]:
    for name, endpoint in settings.endpoints.items():
        service = settings.catalog.services[name]
        for region in service.regions.values():
            yield Address(name, region.name, endpoint.url_in(region.name), region.limit)
        if not service.regions:
            yield Address(name, "", endpoint.url, service.limit)


def _echo_after(seconds: float) -> Callable[[SimulatedExecution], Awaitable[Any]]:
    async def params(call: SimulatedExecution) -> Any:
        await asyncio.sleep(seconds)
        return call.params if call.checked_step is None else PASSED

    return params


# --- services of pull workers --------------------------------------------------------------------
def _workers(stand_in: StandIn) -> Iterator[Worker]:
    """One worker for services without regions, and one for each region."""
    catalog = stand_in.settings.catalog
    pulled = [each for each in catalog.services.values() if each.executor is Executor.PULL]
    regions = {region for each in pulled for region in each.regions}
    for region in [None, *sorted(regions)]:
        if stand_in.region not in (None, region):
            continue
        here = [each for each in pulled if (region in each.regions if region else not each.regions)]
        names = [each.name for each in here]
        if region is None and catalog.task_defaults is not None:
            names.append(EXAMPLE)
        if names:
            offered = {name for each in here for name in each.capabilities}
            worker = Worker(region=region, capabilities=offered)
            for name in names:
                worker.task(name)(_given)
            yield worker


async def _given(ctx: Context, **given: Any) -> dict[str, Any]:
    if ctx.checked_step is not None:
        return PASSED
    return {"task": ctx.task_type, "input": given}
