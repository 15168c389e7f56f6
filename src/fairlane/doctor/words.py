"""Numbers, times and sizes as the findings write them."""

from __future__ import annotations

from fairlane.units import SECOND


def count(number: int, noun: str) -> str:
    """`1 job`, `41,207 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def waits(jobs: int) -> str:
    """`1 job waits`, `312 jobs wait`."""
    return "1 job waits" if jobs == 1 else f"{jobs:,} jobs wait"


def lasts(microseconds: float) -> str:
    """A duration: `41 s`, `38 min`, `5 h`, `3 d`."""
    seconds = microseconds / SECOND
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def size(number: int) -> str:
    value = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
