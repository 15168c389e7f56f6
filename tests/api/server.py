"""A gateway to test with: a real server on a free port over a real engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import httpx2
import uvicorn
from uvicorn.server import ServerState

from fairlane.api.app import App, create_app
from fairlane.api.auth.key_format import new_key
from fairlane.api.http.protocol import HttpProtocol
from fairlane.api.http.websocket_limits import WebSocketProtocol
from fairlane.api.server import listening
from fairlane.config.settings import ServerSettings, Settings
from fairlane.engine import Engine
from fairlane.model.key import Key, Role
from tests.api.described import Description
from tests.core import core_of

TENANT = "acme"
routes_description = cache(Description)


class Beside(uvicorn.Server):
    """A server inside a test, which keeps its own signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up, self.stopped = asyncio.Event(), asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self.on_tick(0)
        self.up.set()

    async def main_loop(self) -> None:
        await self.stopped.wait()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


class Gateway:
    """A running server, and clients that hold keys."""

    def __init__(self, app: App, port: int, state: ServerState) -> None:
        self.app, self.port, self._state = app, port, state
        self.url = f"http://127.0.0.1:{port}"

    @property
    def engine(self) -> Engine:
        return self.app.app_context.engine

    @property
    def connections(self) -> list[HttpProtocol]:
        return [each for each in self._state.connections if isinstance(each, HttpProtocol)]

    @property
    def sockets(self) -> list[WebSocketProtocol]:
        return [each for each in self._state.connections if isinstance(each, WebSocketProtocol)]

    async def key(self, role: Role = Role.CLIENT, tenant: str = TENANT, **more: Any) -> str:
        """A new key; what its holder sends."""
        now = core_of(self.engine).now()
        made = Key("", tenant, role, "", created_at=now)
        key, credential = new_key(replace(made, **more))
        await core_of(self.engine).ledger.keys.add(key, "test")
        self.app.app_context.key_cache.forget(key.id)
        return credential

    def client(self, key: str | None = None, **more: Any) -> httpx2.AsyncClient:
        """Its JSON answers are checked against the OpenAPI description."""
        headers = {**more.pop("headers", {})}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        hooks = {"response": [routes_description().check]}
        return httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=20, event_hooks=hooks, **more
        )


@asynccontextmanager
async def gateway(
    engine: Engine, server: ServerSettings | None = None, **more: Any
) -> AsyncIterator[Gateway]:
    """Serves the engine, which has been started, until the block ends."""
    settings = Settings(
        core_of(engine).file, replace(server or ServerSettings(), port=free_port()), **more
    )
    app = await create_app(engine, settings)
    serving = Beside(listening(app, settings.server))
    task = asyncio.create_task(serving.serve())
    await serving.up.wait()
    try:
        yield Gateway(app, settings.server.port, serving.server_state)
    finally:
        app.app_context.drain()
        serving.stopped.set()
        await task


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
