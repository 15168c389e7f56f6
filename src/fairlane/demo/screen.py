"""The demo's screen: tables in a terminal, lines otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlane.demo.demo import Demo, Status


class Lines:
    """Prints one line from time to time, for a pipe or a file. `wait` says why nothing happens."""

    every = 2.0

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, demo: Demo, status: Status, seconds: float, wait: str) -> None:
        line = demo.line(status, seconds) + (f"; waiting for {wait}" if wait else "")
        self._console.print(line, highlight=False, markup=False)


class Tables:
    """Tables that are updated in place."""

    every = 0.5

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, demo: Demo, status: Status, _: float, wait: str) -> None:
        why = [wrapped(f"Waiting for {wait}.", "bold")] if wait else []
        self._live.update(Group(demo.tables(status), *why), refresh=True)


@contextmanager
def shown(console: Console) -> Iterator[Lines | Tables]:
    if not console.is_terminal:
        yield Lines(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield Tables(live)


def wrapped(text: str, style: str = "") -> Text:
    """A text that goes on in the next line where the terminal ends."""
    return Text(text, style, no_wrap=False, overflow="fold")


def table(left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    made = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False)
    for name in left:
        made.add_column(name)
    for name in right:
        made.add_column(name, justify="right")
    return made


def ranks(waits: list[float]) -> tuple[str, str]:
    """p50 and p95."""
    ranked = sorted(waits)
    if not ranked:
        return "–", "–"
    return f"{ranked[len(ranked) // 2]:.2f}", f"{ranked[int(len(ranked) * 0.95)]:.2f}"
