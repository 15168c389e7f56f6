"""Keys of a terminal, without waiting for a line."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[D": "up",
    b"\x1b[C": "down",
    b"\x1b[Z": "up",  # shift and tab
    b"\t": "down",
    b"k": "up",
    b"j": "down",
    b"q": "quit",
    b"Q": "quit",
    b"p": "pause",
    b" ": "pause",
    b"\x03": "quit",
}


def keys_in(typed: bytes) -> Iterator[str]:
    """The keys in what was typed. Unknown ones are skipped."""
    while typed:
        for sequence, key in SEQUENCES.items():
            if typed.startswith(sequence):
                yield key
                typed = typed[len(sequence) :]
                break
        else:
            typed = typed[3:] if typed.startswith((b"\x1b[", b"\x1bO")) else typed[1:]


@contextmanager
def keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Calls `pressed` for every key inside the block. Does nothing without a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for key in keys_in(os.read(number, 1024)):
            pressed(key)

    tty.setcbreak(number)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
