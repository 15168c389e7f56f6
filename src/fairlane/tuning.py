"""Garbage collector settings for a process that only runs a queue."""

from __future__ import annotations

import gc
import sys


def steady() -> None:
    """What a queue makes lives long, and hardly any of it in cycles: look for them less often. Two
    threads share the work: let them take turns sooner."""
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(0.0005)
