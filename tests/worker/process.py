"""A worker in a process of its own, to be stopped and killed."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import IO

from tests.repo.checkout import ROOT

LONG_ENOUGH = 40.0


class WorkerProcess:
    """As the test sees it: what it has said, and who it is."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._news = asyncio.Event()
        self._listener = asyncio.create_task(self._listen())
        self.said: list[list[str]] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def heard(self, what: str) -> list[str]:
        """The tasks it has said this of."""
        return [task for word, task in self.said if word == what]

    def in_its_hands(self) -> set[str]:
        return set(self.heard("began")) - set(self.heard("ended")) - set(self.heard("cut"))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONG_ENOUGH):
            while not condition():
                await self._news.wait()
                self._news.clear()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """How it ended, and everything it had said is known."""
        code = await self._process.wait()
        await self._listener
        return code

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.said.append(line.decode().split())
            self._news.set()
        self._news.set()

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()


@asynccontextmanager
async def working(*arguments: str, **environment: object) -> AsyncIterator[WorkerProcess]:
    """`fairlane worker` with these arguments. What it logs goes to the file `LOG`, if that is
    named."""
    with _log(environment) as log:
        process = await asyncio.create_subprocess_exec(
            *command(arguments),
            cwd=ROOT,
            env={**os.environ, **{name: str(value) for name, value in environment.items()}},
            stdout=PIPE,
            stderr=log,
        )
    worker = WorkerProcess(process)
    try:
        yield worker
    finally:
        await worker.close()


def _log(environment: Mapping[str, object]) -> AbstractContextManager[IO[bytes] | None]:
    return Path(str(environment["LOG"])).open("ab") if "LOG" in environment else nullcontext()


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "fairlane", "worker", "tests.worker.app:worker", *arguments]
