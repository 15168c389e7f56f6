"""Simulated services: real HTTP servers that count their calls and answer 503 above their limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiohttp import web

MAX_REMEMBERED_CALLS = 10_000

PASSED = {"passed": True}
"""What a simulated quality check answers."""

TURNS = 10
"""Turns of the event loop in which everything in the sockets is read."""


class SimulatedExecution(NamedTuple):
    """A call as the service received it."""

    job: str
    step: int
    attempt: int
    params: Any
    context: dict[str, Any]
    headers: dict[str, str]
    model: str | None = None
    slot: int | None = None
    checked_step: str | None = None


class Switches:
    """How the service misbehaves from now on. It answers `status` to every call at once, drops
    `drops` calls without a response, and with `keeps_cancelled` continues calls that it is asked to
    end."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body: bytes | None = None
        self.drops = 0
        self.keeps_cancelled = False


@dataclass
class SimulatedService:
    """Above its limit (0 = none) it answers 503 and records how far above: `most` is the highest
    number of concurrent calls. It finishes every call that it has begun, also if the caller
    disconnects. It does not begin or count a call whose caller had disconnected before: a service
    that stood still finds such calls in its sockets. `work` answers a call and decides how long it
    takes. `heard` is called with each."""

    name: str
    limit: int = 0
    work: Callable[[SimulatedExecution], Awaitable[Any]] | None = None
    seconds: float = 0
    heard: Callable[[SimulatedExecution], None] | None = None
    switches: Switches = field(default_factory=Switches)
    calls: list[SimulatedExecution] = field(default_factory=list)
    running: int = 0
    most: int = 0
    refused: int = 0
    finished: int = 0
    url: str = ""
    cancels: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = asyncio.Condition()
        self._working: set[asyncio.Task[Any]] = set()
        self._names: dict[asyncio.Task[Any], tuple[str, int, int]] = {}

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[SimulatedService]:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/execute", self._execute)
        app.router.add_post("/v1/cancel", self._cancel)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            for task in self._working:
                task.cancel()
            await asyncio.gather(*self._working, return_exceptions=True)
            await runner.cleanup()

    async def until(self, true: Callable[[SimulatedService], bool]) -> None:
        """Returns when the condition is true."""
        async with self._changed:
            await self._changed.wait_for(lambda: true(self))

    async def _execute(self, request: web.Request) -> web.StreamResponse:
        sent = await request.json()
        if not await _is_wanted(request):
            return web.Response(status=499)
        meta, payload = sent["meta"], sent["payload"]
        call = SimulatedExecution(
            meta["job_id"],
            meta["step_index"],
            meta["attempt"],
            payload["params"],
            payload["context"],
            dict(request.headers),
            meta.get("model"),
            meta.get("slot"),
            meta.get("checked_step"),
        )
        self.calls.append(call)
        del self.calls[:-MAX_REMEMBERED_CALLS]
        if self.heard is not None:
            self.heard(call)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self._tell()
            return await self._answer(call, request)
        finally:
            self.running -= 1
            await asyncio.shield(self._tell())

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        """Ends the calls of this job, step and attempt. Answers 204 when none is left."""
        meta = (await request.json())["meta"]
        name = (meta["job_id"], meta["step_index"], meta["attempt"])
        self.cancels.append(name)
        if self.switches.keeps_cancelled:
            return web.Response(status=409)
        for task in [task for task, its in self._names.items() if its == name]:
            task.cancel()
            await asyncio.wait([task])
        return web.Response(status=204)

    async def _answer(self, call: SimulatedExecution, request: web.Request) -> web.StreamResponse:
        switches = self.switches
        if switches.drops > 0:
            switches.drops -= 1
            if request.transport is not None:
                request.transport.close()
            return web.Response(status=500)
        if switches.status:
            return web.Response(
                status=switches.status, headers=switches.headers, body=switches.body
            )
        if self.limit and self.running > self.limit:
            self.refused += 1
            return web.json_response({"detail": f"only {self.limit} at once"}, status=503)
        task = asyncio.ensure_future(self._work(call))
        self._working.add(task)
        self._names[task] = (call.job, call.step, call.attempt)
        task.add_done_callback(lambda ended: self._names.pop(ended, None))
        task.add_done_callback(self._working.discard)
        data = await asyncio.shield(task)
        self.finished += 1
        if isinstance(data, web.StreamResponse):
            return data
        return web.json_response({"data": data, "metrics": {"service": self.name}})

    async def _work(self, call: SimulatedExecution) -> Any:
        if self.work is not None:
            return await self.work(call)
        await asyncio.sleep(self.seconds)
        if call.checked_step is not None:
            return PASSED
        return {"made_by": self.name, "for": call.job}

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _is_wanted(request: web.Request) -> bool:
    """Whether its caller is still connected. First it reads what is in the sockets: a disconnect,
    or the end of an earlier call."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return request.transport is not None and not request.transport.is_closing()
