"""A gateway as people run it: `fairlane` processes over services that are called by real HTTP, and
callers who hold keys. What differs from the preset is said in variables, as in a container."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import httpx2
from websockets.asyncio.client import connect

from fairlane.demo.services import SimulatedService
from fairlane.presets import gateway

FOREIGN = ("FAIRLANE_", "DATABASE_URL", "REDIS_URL", "PRIORITY_API_URL", "PROMOTE_")
ADMIN = "admin." + "0123456789abcdef" * 4
LEASE = 2
READY = re.compile(rb"curl |dispatching to")
LONG_ENOUGH = 60.0
"""Seconds after which what should have happened is not going to."""


class Running:
    """A process of ours. One that serves has a `url`."""

    def __init__(self, process: Process, said: str) -> None:
        self._process = process
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        self.url = found[0] if found else ""

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def says(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        async with asyncio.timeout(LONG_ENOUGH):
            return (await self._process.stdout.readline()).decode()

    async def ended(self) -> int:
        async with asyncio.timeout(LONG_ENOUGH):
            return await self._process.wait()

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended()


class Site:
    """The four services of the preset "gateway", and whatever else is added; with another preset
    none. The other preset is a file that `fairlane init` writes into the folder. `stores` names
    where the queue stands, nothing for an embedded one."""

    def __init__(
        self,
        folder: Path,
        stores: Mapping[str, str],
        stack: AsyncExitStack,
        preset: str = "gateway",
    ) -> None:
        self.folder, self._stack, self.clustered = folder, stack, bool(stores)
        self._preset = preset
        self.variables = {"FAIRLANE_ADMIN_KEY": ADMIN, **stores}
        self.set("server", lease=LEASE)
        self.services: dict[str, SimulatedService] = {}

    def set(self, section: str, **settings: Any) -> None:
        """For every process that starts from now on."""
        for name, value in settings.items():
            parts = "__".join((*section.split("."), name)).upper()
            self.variables[f"FAIRLANE_{parts}"] = json.dumps(value)

    async def open(self) -> None:
        if self._preset == "gateway":
            for service in gateway().services.values():
                await self.add(SimulatedService(service.name, service.limit))
        else:
            await self.run("init", "--preset", self._preset)
        if self.clustered:
            await self.run("migrate")

    async def run(self, *arguments: str) -> str:
        """A command that ends by itself. Returns what it printed."""
        process = await self._process(*arguments)
        printed, _ = await process.communicate()
        assert process.returncode == 0, self.log()
        return printed.decode()

    async def add(self, service: SimulatedService, **settings: Any) -> SimulatedService:
        await self._stack.enter_async_context(service.serving())
        self.services[service.name] = service
        self.set(f"services.{service.name}", url=service.url, limit=service.limit, **settings)
        return service

    async def serve(self, *, files: int = 0) -> Running:
        """With no more than so many open files, if that is said."""
        return await self._started("serve", "--port", "0", files=files)

    async def dispatch(self) -> Running:
        return await self._started("dispatch")

    async def other_door(self, first: Running) -> Running:
        """Where somebody else is served: on a cluster another process."""
        return await self.serve() if self.clustered else first

    async def another(self, first: Running) -> Running:
        """A cluster gets one more; an embedded queue has one process, so the first is killed."""
        if not self.clustered:
            await first.kill()
        return await self.serve()

    async def caller(self, at: Running, **rights: Any) -> Caller:
        async with Caller(at.url, ADMIN) as admin:
            wish = {"role": "client", "tenant": "acme", **rights}
            made = await admin.http.post("/admin/keys", json=wish)
        return await self._stack.enter_async_context(Caller(at.url, made.json()["key"]))

    async def same(self, caller: Caller, at: Running) -> Caller:
        """At another door."""
        return await self._stack.enter_async_context(caller.at(at))

    async def admin(self, at: Running) -> Caller:
        return await self._stack.enter_async_context(Caller(at.url, ADMIN))

    def log(self) -> str:
        """What its processes said on standard error."""
        return (self.folder / "log").read_text()

    async def _started(self, *arguments: str, files: int = 0) -> Running:
        settings = ["--preset", "gateway"] if self._preset == "gateway" else []
        process = await self._process(*arguments, *settings, files=files)
        assert process.stdout is not None
        said = b""
        while not READY.search(said):
            line = await process.stdout.readline()
            assert line, self.log()
            said += line
        return Running(process, said.decode())

    async def _process(self, *arguments: str, files: int = 0) -> Process:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        command = [sys.executable, "-m", "fairlane", *arguments]
        if files:
            command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command]
        with (self.folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=self.folder, env={**kept, **self.variables}, stdout=PIPE, stderr=log
            )
        self._stack.push_async_callback(_gone, process)
        return process


async def _gone(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.communicate()


class Caller:
    """Somebody with a key."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._headers = url, {"Authorization": f"Bearer {key}"}
        self.http = httpx2.AsyncClient(base_url=url, headers=self._headers, timeout=LONG_ENOUGH)

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    def at(self, other: Running) -> Caller:
        """The same key at another door; leave it as `async with`."""
        return Caller(other.url, self._headers["Authorization"].removeprefix("Bearer "))

    async def submit(self, feature: str, **more: Any) -> dict[str, Any]:
        answer = await self.http.post("/api/v1/jobs", json={"feature_name": feature, **more})
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def job(self, job: str) -> dict[str, Any]:
        answer = await self.http.get(f"/api/v1/jobs/{job}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def events(self, job: str, after: int = 0) -> AsyncGenerator[dict[str, Any]]:
        """Those with a number, by WebSocket, until the job is over."""
        url = f"{self._url.replace('http', 'ws', 1)}/ws/{job}?after={after}"
        async with connect(url, additional_headers=self._headers) as socket:
            async for text in socket:
                event = json.loads(text)
                if "seq" in event:
                    yield event

    async def until(self, job: str, *types: str, message: str = "") -> dict[str, Any]:
        """The first event of such a type, with this message if one is named."""
        async with asyncio.timeout(LONG_ENOUGH), aclosing(self.events(job)) as events:
            async for event in events:
                if event["type"] in types and message in event["message"]:
                    return event
        raise AssertionError(f"{job} ended without {types} {message}")

    async def ended(self, job: str) -> dict[str, Any]:
        """The job when it is over, of which server-sent events tell."""
        path, headers = f"/api/v1/jobs/{job}/events", {"Accept": "text/event-stream"}
        async with (
            asyncio.timeout(LONG_ENOUGH),
            self.http.stream("GET", path, headers=headers) as answer,
        ):
            async for _ in answer.aiter_lines():
                pass
        return await self.job(job)

    async def change(self, service: str, **settings: Any) -> None:
        answer = await self.http.put(f"/admin/services/{service}", json=settings)
        assert answer.status_code == 200, answer.text
