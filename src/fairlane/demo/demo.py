"""What every demo has: a simulated world around real processes, and a picture of it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

from rich.console import RenderableType

from fairlane.background import end_all
from fairlane.demo.processes import DemoProcesses

Status = dict[str, Any]
"""The responses of a demo's `paths`, merged."""


class Fate(NamedTuple):
    """What became of the accepted jobs, read from the ledger after all processes ended."""

    accepted: int
    done: int
    live: int
    cancelled: int
    failed: int
    lost: int
    wrong: list[str]
    """Which invariants of the ledger are violated."""

    @property
    def ledger(self) -> str:
        return "NOT sound: " + ", ".join(self.wrong) if self.wrong else "sound"

    @property
    def is_sound(self) -> bool:
        return not (self.failed or self.lost or self.wrong)


class Demo(ABC):
    """The simulated world of one preset. `accepted` are the ids of all accepted jobs."""

    preset: str
    title: str
    paths: Sequence[str]
    """What the display reads from the API."""

    default_speed = 100.0
    """How many times faster than real time the demo runs if the user does not say."""

    workers: Sequence[str] = ()
    """Module and variable of each worker that runs beside the servers."""

    def __init__(self, speed: float | None = None) -> None:
        self.speed = self.default_speed if speed is None else speed

    @property
    @abstractmethod
    def accepted(self) -> Sequence[str]: ...

    @abstractmethod
    def world(self) -> AbstractAsyncContextManager[None]:
        """Runs what has to be there before the processes start."""

    @abstractmethod
    def variables(self) -> dict[str, str]:
        """Settings as environment variables, inside `world`."""

    @abstractmethod
    def playing(self, processes: DemoProcesses) -> AbstractAsyncContextManager[None]:
        """Runs the users."""

    @abstractmethod
    def held(self, status: Status) -> int:
        """Slots that the queue counts as taken although no process works in them."""

    @abstractmethod
    def tables(self, status: Status) -> RenderableType:
        """The picture for a terminal."""

    @abstractmethod
    def line(self, status: Status, seconds: float) -> str:
        """The picture in one line, for a pipe or a file."""

    @abstractmethod
    def last_lines(self, fate: Fate) -> list[str]: ...

    @abstractmethod
    def is_sound(self, fate: Fate) -> bool:
        """Whether nothing went wrong that the demo says cannot go wrong."""


@asynccontextmanager
async def in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs this beside the body, and ends it with the body. Raises its error, if it had one."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        await end_all(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
