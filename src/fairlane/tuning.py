"""Garbage collector settings for a process that only runs a queue."""

from __future__ import annotations

import gc
import sys


def steady() -> None:
    """Objects of a queue live long, and few of them are in cycles: collect less often. Event loop
    and writer are two threads: switch between them sooner."""
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(0.0005)
