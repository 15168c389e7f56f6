"""Signal handlers: SIGTERM and Ctrl-C drain a worker, also while a task blocks the event loop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def calling_on_signals(drain: Callable[[], None]) -> Iterator[None]:
    """Python runs these handlers in the main thread, between two bytecodes; handlers of an event
    loop would wait until the loop is free. A second Ctrl-C ends the process. In another thread than
    the main one nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        drain()

    before = {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
