"""A worker whose task only records its start time, for `fairlane bench --tasks`."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import NamedTuple

from fairlane.worker import Worker

CAPACITY, HITS = "FAIRLANE_BENCH_CAPACITY", "FAIRLANE_BENCH_HITS"
NAME = "noop"
RECORD = struct.Struct("<qqq")


class Hit(NamedTuple):
    """One start: the task's number, and when it was submitted (0 = not recorded) and started, in
    nanoseconds."""

    number: int
    submitted: int
    started: int

    @classmethod
    def read(cls, file: Path) -> list[Hit]:
        return [cls(*each) for each in RECORD.iter_unpack(file.read_bytes())]


def worker_of(hits: Path, capacity: int) -> Worker:
    made = Worker(capacity=capacity, grace=0)
    file = os.open(hits, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @made.task(NAME)
    async def noop(text: str, number: int = 0, at: int = 0) -> dict[str, int]:
        os.write(file, RECORD.pack(number, at, time.monotonic_ns()))
        return {"length": len(text)}

    return made


worker = worker_of(Path(os.environ.get(HITS, os.devnull)), int(os.environ.get(CAPACITY, "100")))
