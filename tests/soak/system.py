"""What is under load in a soak: one embedded server with a worker, or a cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import redis.asyncio
from aiohttp import web

from fairlane.config.load import without_settings
from fairlane.demo.services import SimulatedExecution, SimulatedService
from fairlane.servers import Postgres, Redis
from tests.chaos.system import ADMIN
from tests.fairlane_process import FairlaneProcess
from tests.soak.samples import (
    FileStores,
    Sample,
    ServerStores,
    Stores,
    cpu_seconds,
    process_sample,
)

LIMIT = 64
APIS, DISPATCHERS = 2, 2


class SoakSystem:
    """The processes under load, by name, and their stores."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder, self._variables = folder, variables
        self.processes: dict[str, FairlaneProcess] = {}
        self.urls: list[str] = []
        self.servers: tuple[Postgres | Redis, ...] = ()
        self.stores: Stores

    async def start(self, name: str, *arguments: str) -> None:
        serves = arguments[0] == "serve"
        self.processes[name] = FairlaneProcess(
            name,
            list(arguments),
            self._variables,
            self.folder / f"{name}.log",
            self.urls.append if serves else None,
        )
        await self.processes[name].start()

    async def start_worker(self) -> None:
        await self.start("worker", "worker", "tests.soak.worker_app:worker", "--url", self.urls[0])

    async def end(self) -> dict[str, list[int]]:
        """Ends every process. Returns which of them had ended without being told."""
        await asyncio.gather(*(each.end(signal.SIGTERM) for each in self.processes.values()))
        return {name: each.unexpected_ends for name, each in self.running() if each.unexpected_ends}

    def running(self) -> Iterator[tuple[str, FairlaneProcess]]:
        yield from self.processes.items()

    async def sample(self, at: float) -> Sample:
        found = {name: each.pid for name, each in self.running()}
        return Sample(
            at,
            {name: process_sample(pid) for name, pid in found.items() if pid is not None},
            await self.stores.sizes(),
        )

    def cpu(self) -> float:
        """Seconds of CPU time of the processes under load and their servers."""
        pids = [each.pid for each in self.processes.values() if each.pid is not None]
        pids += [pid for server in self.servers for pid in server.pids]
        return sum(map(cpu_seconds, pids))


@asynccontextmanager
async def soak_system(
    folder: Path, *, cluster: bool, retention: float
) -> AsyncIterator[SoakSystem]:
    async with AsyncExitStack() as stack:
        service = SimulatedService("called", work=called)
        await stack.enter_async_context(service.serving())
        config = folder / "fairlane.toml"
        config.write_text(settings(service.url, retention))
        variables = {
            "FAIRLANE_ADMIN_KEY": ADMIN,
            "FAIRLANE_KEY": ADMIN,
            "FAIRLANE_SERVER__LOG_LEVEL": "warning",
        }
        system = SoakSystem(folder, variables)
        stack.push_async_callback(system.end)
        settled = ("--config", str(config))
        if cluster:
            await _start_cluster(system, variables, stack, settled)
        else:
            data = folder / "data"
            await system.start("server", "serve", "--port", "0", "--data", str(data), *settled)
            system.stores = FileStores(data / "ledger.db")
        await system.start_worker()
        yield system


async def _start_cluster(
    system: SoakSystem,
    variables: dict[str, str],
    stack: AsyncExitStack,
    settled: tuple[str, ...],
) -> None:
    postgres = stack.enter_context(Postgres(fsync=True))
    index = stack.enter_context(Redis())
    system.servers = (postgres, index)
    database = await postgres.new_database()
    variables |= {"DATABASE_URL": database, "REDIS_URL": index.url}
    migration = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fairlane", "migrate", *settled),
        env={**without_settings(os.environ), **variables},
    )
    if await migration.wait():
        raise RuntimeError("fairlane migrate failed")
    connection = await asyncpg.connect(database, server_settings={"search_path": "fairlane"})
    stack.push_async_callback(connection.close)
    client = redis.asyncio.from_url(index.url)
    stack.push_async_callback(client.aclose)
    system.stores = ServerStores(connection, client)
    for n in range(APIS):
        await system.start(f"api-{n}", "serve", "--no-dispatch", "--port", "0", *settled)
    for n in range(DISPATCHERS):
        await system.start(f"dispatcher-{n}", "dispatch", *settled)


async def called(call: SimulatedExecution) -> Any:
    if call.params["fails"]:
        return web.Response(status=500)
    return {"text": call.params["text"]}


def settings(url: str, retention: float) -> str:
    """The configuration file. What has ended is deleted after `retention` seconds."""
    return f"""
[server]
key_rate = 0

[limits]
keep_finished = {retention}
keep_dead = {retention}
keep_keys = {retention}
cleanup_interval = {min(10.0, retention / 2)}
users_per_key = 0

[services.called]
url = "{url}"
limit = {LIMIT}
max_attempts = 1

[services.pulled]
executor = "pull"
limit = {LIMIT}
max_attempts = 1
"""
