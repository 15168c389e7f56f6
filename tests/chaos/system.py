"""The cluster of a chaos run: servers, processes, and a proxy on every connection between them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2

from fairlane.config.load import without_settings
from fairlane.servers import Postgres, Redis
from fairlane.servers.process import send
from tests.chaos.history import HistoryWriter
from tests.chaos.plan import (
    APIS,
    CALL_TIMEOUT_SECONDS,
    CALLED,
    DISPATCHERS,
    LEASE_SECONDS,
    PIPELINE,
    SERVICES,
    USERS,
    WORKERS,
)
from tests.chaos.services import recorded
from tests.chaos.slot_log import ledger_connection, start_slot_log
from tests.fairlane_process import START_SECONDS, FairlaneProcess
from tests.proxy import Proxy
from tests.small_disk import SmallDisk, can_mount, database_on

ADMIN = "admin." + "0123456789abcdef" * 4
NOWHERE = "http://127.0.0.1:1"


class ChaosSystem:
    """An asynchronous context manager; when it is entered, everything runs."""

    def __init__(self, folder: Path, history: HistoryWriter) -> None:
        self.folder, self.history = folder, history
        self._stack = AsyncExitStack()
        self._threads = ThreadPoolExecutor(1)  # the kernel ends a server with its thread
        self.links: dict[str, Proxy] = {}
        self.processes: dict[str, FairlaneProcess] = {}
        self.disk: SmallDisk | None = None
        self.api_urls: list[str] = []
        self.key = ADMIN

    async def __aenter__(self) -> ChaosSystem:
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._threads.shutdown()

    async def in_thread(self, act: Callable[..., Any], *args: Any) -> Any:
        """Servers are started and stopped in one thread that lives as long as the run."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, *args)

    async def _open(self) -> None:
        self.postgres, self.redis = Postgres(fsync=True, in_memory=True), Redis()
        for server in (self.postgres, self.redis):
            await self.in_thread(server.start)
            self._stack.push_async_callback(self.in_thread, server.stop)
        self.database = await self._new_database()
        services = {}
        for name in CALLED:
            service = recorded(name, self.history)
            await self._stack.enter_async_context(service.serving())
            services[name] = (await self._link(f"calls:{name}", service.url)).url
        config = self.folder / "fairlane.toml"
        config.write_text(settings(services))
        common = {"FAIRLANE_ADMIN_KEY": ADMIN, "FAIRLANE_CONFIG": str(config)}
        await self._migrate(common)
        await self._log_slots()
        for n in range(APIS):
            await self._add_api(n)
        for n in range(DISPATCHERS):
            await self._add(f"dispatch-{n}", ["dispatch"], await self._stores(f"dispatch-{n}"))
        for n in range(WORKERS):
            name = f"worker-{n}"
            link = self.links[f"{name}:api"]
            mine = {
                "CHAOS_PROCESS": name,
                "CHAOS_HISTORY": str(self.folder / f"{name}.jsonl"),
                "FAIRLANE_KEY": ADMIN,
            }
            arguments = ["worker", "tests.chaos.worker_app:worker", "--url", link.url]
            await self._add(name, arguments, mine)
        await self._give_credits()

    async def _new_database(self) -> str:
        """In a tablespace of its own on a file system that can be full, if one can be mounted."""
        if not can_mount():
            return await self.postgres.new_database()
        self.disk = self._stack.enter_context(SmallDisk(self.postgres.folder / "small"))
        return await database_on(self.disk, self.postgres)

    async def _migrate(self, common: dict[str, str]) -> None:
        stores = {"DATABASE_URL": self.database, "REDIS_URL": self.redis.url}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fairlane", "migrate"),
            env={**without_settings(os.environ), **common, **stores},
            cwd=self.folder,
        )
        if await process.wait():
            raise RuntimeError("fairlane migrate failed")

    async def _log_slots(self) -> None:
        async with ledger_connection(self.database) as connection:
            await start_slot_log(connection)

    async def _add_api(self, n: int) -> None:
        name = f"api-{n}"
        callers = (f"worker-{worker}:api" for worker in range(n, WORKERS, APIS))
        links = [await self._link(each, NOWHERE) for each in (f"clients:{name}", *callers)]
        self.api_urls.append(links[0].url)

        def started(url: str) -> None:
            for link in links:
                link.lead_to(url)

        arguments = ["serve", "--no-dispatch", "--port", "0"]
        await self._add(name, arguments, await self._stores(name), started)

    async def _stores(self, name: str) -> dict[str, str]:
        postgres = await self._link(f"{name}:postgres", self.database)
        redis = await self._link(f"{name}:redis", self.redis.url)
        return {
            "DATABASE_URL": postgres.url,
            "REDIS_URL": redis.url,
            "FAIRLANE_ADMIN_KEY": ADMIN,
            "FAIRLANE_CONFIG": str(self.folder / "fairlane.toml"),
        }

    async def _link(self, name: str, url: str) -> Proxy:
        self.links[name] = await self._stack.enter_async_context(Proxy(url))
        return self.links[name]

    async def _add(
        self,
        name: str,
        arguments: list[str],
        variables: dict[str, str],
        started: Callable[[str], None] | None = None,
    ) -> None:
        if arguments[0] != "worker":
            arguments = [*arguments, "--config", variables.pop("FAIRLANE_CONFIG")]
        process = FairlaneProcess(name, arguments, variables, self.folder / f"{name}.log", started)
        self.processes[name] = process
        await process.start()
        self._stack.push_async_callback(process.end, signal.SIGKILL)

    async def _give_credits(self) -> None:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with httpx2.AsyncClient(base_url=self.api_urls[0], headers=headers) as client:
            for n in range(USERS):
                sent = {"amount": 8 if n % 2 else 5000, "operation_key": "first", "note": "gift"}
                await self._until_done(client, f"/admin/users/user-{n}/credits", sent)

    async def _until_done(
        self, client: httpx2.AsyncClient, path: str, sent: dict[str, Any]
    ) -> None:
        """While the processes start, a busy machine may answer late."""
        async with asyncio.timeout(START_SECONDS):
            while (await client.post(path, json=sent)).status_code >= 500:  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def leave(self) -> dict[str, list[int]]:
        """Ends every process in its own way. Returns which of them had ended without being told."""
        await asyncio.gather(*(each.end(signal.SIGTERM) for each in self.processes.values()))
        return {
            each.name: each.unexpected_ends
            for each in self.processes.values()
            if each.unexpected_ends
        }

    def server(self, name: str) -> Postgres | Redis:
        return self.redis if name == "redis" else self.postgres

    def signal_server(self, name: str, number: signal.Signals) -> None:
        """To the server and its children."""
        send(number, self.server(name).pids)


def settings(services: dict[str, str]) -> str:
    """The configuration file."""
    lines = [
        "[server]",
        f"lease = {LEASE_SECONDS}",
        "grace = 2",
        "[tiers]",
        'order = ["high", "medium", "low"]',
        'default = "medium"',
        "[tiers.medium]",
        "promote = { high = 20 }",
        "max_retries = 8",
        "pending = 10",
        "[pipelines]",
        f"{PIPELINE[0]} = {PIPELINE[1]}",
    ]
    for name, each in SERVICES.items():
        lines += [
            f"[services.{name}]",
            f"limit = {each['limit']}",
            f'overrun = "{each["overrun"]}"',
            f"timeout = {CALL_TIMEOUT_SECONDS}",
            "max_attempts = 8",
            "backoff = [0.2, 1]",
            f'url = "{services[name]}"' if name in services else 'executor = "pull"',
        ]
    return "\n".join(lines) + "\n"
