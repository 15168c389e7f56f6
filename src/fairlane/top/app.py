"""The program behind `fairlane top`: frames and keys come in, the screen is drawn."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import orjson
from rich.console import Console
from rich.live import Live
from rich.text import Text

from fairlane.top.feed import Shown
from fairlane.top.keyboard import keys
from fairlane.top.view import ViewState, draw, moved

PIPE_WIDTH, PIPE_HEIGHT = 120, 60
FIRST_FRAME_SECONDS = 10.0


class NoFrame(Exception):
    """No frame came in time."""


async def once(frames: AsyncGenerator[Shown, None], *, as_json: bool) -> None:
    """Prints the first frame."""
    frame = await _first(frames)
    if as_json:
        print_json(frame)
        return
    console = Console(highlight=False)
    width, height = console.size if console.is_terminal else (PIPE_WIDTH, PIPE_HEIGHT)
    console = Console(width=width, highlight=False)
    console.print(draw(frame, ViewState(), width, height))


async def _first(frames: AsyncGenerator[Shown, None]) -> dict[str, Any]:
    """The second frame: the first one may be some seconds old, because no viewer was there."""
    problem, found = "the server sent no frame", list[dict[str, Any]]()
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_FRAME_SECONDS), aclosing(frames):
            async for shown in frames:
                if shown.frame is not None:
                    found.append(shown.frame)
                if shown.problem or len(found) > 1:
                    problem = shown.problem
                    break
    if not found:
        raise NoFrame(problem)
    return found[-1]


async def lines(frames: AsyncGenerator[Shown, None]) -> None:
    """Prints every frame as one line of JSON, until the process ends."""
    async with aclosing(frames):
        async for shown in frames:
            if shown.frame is not None and not shown.problem:
                print_json(shown.frame)


def print_json(frame: dict[str, Any]) -> None:
    print(orjson.dumps(frame).decode(), flush=True)  # noqa: T201 - its output


class Top:
    """The live screen. It is drawn at every frame, key and change of the window's size."""

    def __init__(self, frames: AsyncGenerator[Shown, None], console: Console) -> None:
        self._frames, self._console = frames, console
        self._state, self._problem = ViewState(), ""
        self._frame: dict[str, Any] | None = None
        self._changed, self._quit = asyncio.Event(), False
        self._newest: dict[str, Any] | None = None

    async def run(self) -> None:
        """Runs until the user quits."""
        loop = asyncio.get_running_loop()
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(lambda _: self._changed.set())
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        try:
            with (
                keys(self.press),
                Live(console=self._console, screen=True, auto_refresh=False) as live,
            ):
                while not self._quit and not reading.done():
                    self._changed.clear()
                    live.update(self.drawn(), refresh=True)
                    await self._changed.wait()
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            if not reading.done():
                reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    def press(self, key: str) -> None:
        match key:
            case "quit":
                self._quit = True
            case "pause":
                self._frame = self._newest
                self._state = self._state._replace(paused=not self._state.paused)
            case "up" | "down":
                frame = self._shown_frame()
                self._state = moved(frame, self._state, -1 if key == "up" else 1)
            case _:
                return
        self._changed.set()

    def drawn(self) -> Any:
        frame = self._shown_frame()
        if frame is None:
            return Text(self._problem or "waiting for the first frame …")
        width, height = self._console.size
        state = self._state._replace(problem=self._problem)
        return draw(frame, state, width, height)

    def _shown_frame(self) -> dict[str, Any] | None:
        if not self._state.paused or self._frame is None:
            self._frame = self._newest
        return self._frame

    async def _read(self) -> None:
        async with aclosing(self._frames):
            async for shown in self._frames:
                self._problem = shown.problem
                if shown.frame is not None:
                    self._newest = shown.frame
                self._changed.set()
