"""`fairlane doctor --pre`: the same checks before serving, over the stores, the disk, the port and
the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from fairlane.api.server import bind
from fairlane.cli import configure
from fairlane.cli.remote import USAGE, stop
from fairlane.compose import index_server, ledger_server
from fairlane.config.settings import ServerSettings, Settings
from fairlane.doctor.checks import BEFORE_SERVING
from fairlane.doctor.facts import (
    Facts,
    Here,
    IndexFacts,
    KeyFacts,
    LedgerFacts,
    NotLooked,
    PortFacts,
)
from fairlane.doctor.findings import Finding, judged
from fairlane.doctor.gather import CHECK_SECONDS, machine_clock
from fairlane.engine.inspection import IndexState
from fairlane.errors import FairlaneError, SetupError
from fairlane.index.index import IndexServer
from fairlane.ledger.store_stats import StoreProbe


def report(config: Path | None, preset: str, only: str | None) -> dict[str, Any]:
    """The findings of `--pre`, as the server would answer them. Bad settings end the command."""
    settings = configure.settings(config, preset=preset)
    names = {each.strip() for each in only.split(",")} if only else set[str]()
    unknown = names - {each.name for each in BEFORE_SERVING}
    if unknown:
        known = ", ".join(sorted(each.name for each in BEFORE_SERVING))
        stop(f"no check {', '.join(sorted(unknown))} before serving; known: {known}", USAGE)
    began = time.perf_counter()
    findings = asyncio.run(examine(settings, names))
    seconds = time.perf_counter() - began
    return {"findings": [each._asdict() for each in findings], "seconds": seconds}


async def examine(settings: Settings, only: Collection[str] = ()) -> list[Finding]:
    """What is wrong with the surroundings that these settings name."""
    facts = await _gathered(settings)
    chosen = [each for each in BEFORE_SERVING if not only or each.name in only]
    return judged(chosen, facts)


async def _gathered(settings: Settings) -> Facts:
    ledger, index = await asyncio.gather(
        _within(lambda: ledger_server(settings)), _within(lambda: index_server(settings))
    )
    groups: dict[type, object] = {
        Here: _here(settings, ledger),
        PortFacts: _port(settings.server),
        IndexFacts: index if isinstance(index, NotLooked) else IndexFacts(_state(index)),
    }
    if isinstance(ledger, NotLooked):
        groups |= {LedgerFacts: ledger, KeyFacts: ledger}
    else:
        groups |= {LedgerFacts: LedgerFacts(ledger.server), KeyFacts: KeyFacts(ledger.keys)}
    return Facts(groups)


T = TypeVar("T")


async def _within(look: Callable[[], Awaitable[T]]) -> T | NotLooked:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await look()
    except TimeoutError:
        return NotLooked(f"no answer within {CHECK_SECONDS:g} s")
    except FairlaneError as error:
        return NotLooked(str(error))


def _here(settings: Settings, ledger: StoreProbe | NotLooked) -> Here:
    now = machine_clock()
    shared = ledger.server.wall_clock if isinstance(ledger, StoreProbe) else None
    return Here(
        version=version("fairlane"),
        mode=settings.server.mode,
        host=settings.server.host,
        loopback=settings.server.loopback,
        now=now if shared is None else shared,
        wall_clock=now,
        catalog=settings.catalog,
        called=frozenset(settings.endpoints),
        notes=tuple(settings.notes),
    )


def _port(server: ServerSettings) -> PortFacts:
    address = f"{server.host}:{server.port}"
    try:
        bind(server).close()
    except SetupError as error:
        return PortFacts(address, str(error))
    return PortFacts(address)


def _state(server: IndexServer | None) -> IndexState:
    return IndexState(ready=True, epoch="", own_epoch="", rebuilding=False, server=server)
