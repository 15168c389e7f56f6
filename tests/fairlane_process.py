"""A `fairlane` process that a test starts, ends and starts again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fairlane.config.load import without_settings
from tests.repo.checkout import ROOT

ADDRESS = re.compile(rb"http://127\.0\.0\.1:\d+")
START_SECONDS = 60.0


class FairlaneProcess:
    """A `fairlane` process. It can be started again after it has ended. `started` is called with
    the address that an API prints. `python` is an interpreter with the version to run."""

    def __init__(
        self,
        name: str,
        arguments: list[str],
        variables: dict[str, str],
        log: Path,
        started: Callable[[str], None] | None = None,
        *,
        python: str = sys.executable,
    ) -> None:
        self.name, self._python = name, python
        self._arguments, self._variables, self._log = arguments, variables, log
        self._started = started
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._serves = asyncio.Event()
        self._expected_end = False
        self.unexpected_ends: list[int] = []

    async def start(self) -> None:
        """An API serves when this returns, unless its stores are away for long."""
        self._expected_end = False
        self._serves.clear()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(self._python, "-m", "fairlane", *self._arguments),
                cwd=ROOT,
                env={**without_settings(os.environ), **self._variables},
                stdin=DEVNULL,
                stdout=PIPE if self._started else log,
                stderr=log,
            )
        self._reader = asyncio.create_task(self._watch(self._process))
        if self._started:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_SECONDS):
                    await self._serves.wait()

    @property
    def pid(self) -> int | None:
        """While it runs."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def _watch(self, process: Process) -> None:
        if self._started and process.stdout is not None:
            async for line in process.stdout:
                if found := ADDRESS.search(line):
                    self._started(found[0].decode())
                    self._serves.set()
        code = await process.wait()
        if not self._expected_end:
            self.unexpected_ends.append(code)

    async def end(self, number: signal.Signals) -> None:
        """Sends the signal, and SIGKILL if the process does not end by itself."""
        process = self._process
        self._expected_end = True
        if process is None or process.returncode is not None or self._reader is None:
            return
        process.send_signal(number)
        try:
            async with asyncio.timeout(15):
                await asyncio.shield(self._reader)
        except TimeoutError:
            process.kill()
            await self._reader

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
