"""A real browser without a window, told what to do over its DevTools protocol."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
LISTENING = b"DevTools listening on "
ANSWERS_WITHIN = 30
LONGEST_MESSAGE = 1 << 26


def installed() -> str | None:
    """The browser of this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """One page, and everything it said and asked for."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket, self._session, self._numbers = socket, session, count(1000)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False

    async def open(self, url: str, *, width: int = 1200, scheme: str = "light") -> None:
        """Returns when everything has loaded."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await self.tell("Emulation.setDeviceMetricsOverride", **size)
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.tell("Emulation.setEmulatedMedia", features=wanted)
        self._loaded = False
        await self.tell("Page.navigate", url=url)
        async with asyncio.timeout(ANSWERS_WITHIN):
            while not self._loaded:
                self._heard(json.loads(await self._socket.recv()))

    async def value(self, expression: str) -> Any:
        """What a piece of JavaScript makes of the page."""
        how = {"returnByValue": True, "awaitPromise": True}
        answer = await self.tell("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def tell(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        await _send(self._socket, number, method, parameters, self._session)
        async with asyncio.timeout(ANSWERS_WITHIN):
            while True:
                message = json.loads(await self._socket.recv())
                if message.get("id") == number:
                    assert "error" not in message, message
                    return message["result"]
                self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        said = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(said["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(said["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if said["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(said["args"]))
            case "Log.entryAdded" if said["entry"]["level"] in ("error", "warning"):
                self.complaints.append(said["entry"]["text"])
            case _:
                pass


@asynccontextmanager
async def tab(program: str, folder: Path) -> AsyncIterator[Tab]:
    """A browser of its own that keeps what it must in this folder; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        program,
        *FLAGS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            address = await _address(process)
        async with connect(address, max_size=LONGEST_MESSAGE, ping_interval=None) as socket:
            made = await _ask(socket, 1, "Target.createTarget", {"url": "about:blank"})
            attached = {"targetId": made["targetId"], "flatten": True}
            session = (await _ask(socket, 2, "Target.attachToTarget", attached))["sessionId"]
            found = Tab(socket, session)
            for domain in ("Page", "Network", "Runtime", "Log"):
                await found.tell(f"{domain}.enable")
            yield found
    finally:
        process.terminate()
        await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        if line.startswith(LISTENING):
            return line.removeprefix(LISTENING).decode().strip()
    raise AssertionError("the browser ended before it listened")


async def _ask(socket: ClientConnection, number: int, method: str, parameters: Any) -> Any:
    await _send(socket, number, method, parameters)
    async with asyncio.timeout(ANSWERS_WITHIN):
        while True:
            message = json.loads(await socket.recv())
            if message.get("id") == number:
                return message["result"]


async def _send(
    socket: ClientConnection, number: int, method: str, parameters: Any, session: str = ""
) -> None:
    message = {"id": number, "method": method, "params": parameters}
    await socket.send(json.dumps({**message, "sessionId": session} if session else message))
