"""Dashboard benchmark: what viewers cost a server with a long queue. The server and the viewers are
processes of their own. Submits are measured in many short slices, in turn with and without
viewers: what changes on the machine during the run affects both alike."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop
from websockets.asyncio.client import ClientConnection, connect

from fairlane.bench import http_client as client
from fairlane.bench.http_client import BenchServer
from fairlane.bench.measure import Figure
from fairlane.bench.percentiles import percentile

VIEWERS, WAITING = 100, 100_000
RATE, SLICE_SECONDS, PAIRS = 200.0, 2.0, 28
BATCH = 500
SETTLING_SECONDS = 3.0
CONNECTED_SECONDS = 1.0
"""Viewers are connected for so long before a slice: what they cost is measured, not their arrival.
"""
RESAMPLES, SEED = 2_000, 1
SERVICES = "[services.noop]\nlimit = 8\n[services.other]\nlimit = 8\n"
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - on Linux a file system in memory
"""The ledger is here where that is possible. On a disk, a few slow fsyncs decide the p99."""


class Slice(NamedTuple):
    """The latencies of submits in ms, and the processor time of the server in seconds."""

    latencies: list[float]
    cpu: float
    seconds: float


class Pair(NamedTuple):
    """Two slices, one directly after the other."""

    without: Slice
    viewed: Slice


class Interval(NamedTuple):
    low: float
    high: float


def figures(*, short: bool) -> Iterator[Figure]:
    waiting, pairs = (2_000, 2) if short else (WAITING, PAIRS)
    yield from uvloop.run(measured(waiting, pairs, SLICE_SECONDS))


async def measured(waiting: int, pairs: int, seconds: float) -> list[Figure]:
    in_memory = os.access(MEMORY_FOLDER, os.W_OK)
    parent = MEMORY_FOLDER if in_memory else None
    async with client.server(SERVICES, parent=parent) as served, _viewers(served.port) as viewers:
        await client.batch_submits(served.port, waiting, BATCH)
        await client.paced_submits(served.port, RATE, seconds)
        memory = await _memory(served, viewers)
        found = [await _pair(served, viewers, n, seconds) for n in range(pairs)]
    place = f"ledger in {MEMORY_FOLDER}" if in_memory else "ledger on disk"
    paced = f"{RATE:g} jobs/s, {waiting:,} waiting jobs, {place}"
    crowd = f"{VIEWERS} viewers, {paced}"
    in_turn = f"{pairs} pairs of slices of {seconds:g} s"
    without, viewed = _p99s(found)
    return [
        Figure("submit p99", f"no viewer, {paced}", "ms", [without]),
        Figure("submit p99", crowd, "ms", [viewed]),
        Figure(
            "change of submit p99", f"{crowd}; {in_turn}", "%", [_change(found)], interval(found)
        ),
        Figure("server memory", f"{crowd}, more than without", "MB", [memory]),
        Figure("processor time", f"{crowd}, more than without", "% of a core", [_cpu(found)]),
    ]


async def _pair(served: BenchServer, viewers: Viewers, number: int, seconds: float) -> Pair:
    """The order changes from pair to pair: a queue that grows does not favour one side."""
    if number % 2:
        viewed = await _viewed(served, viewers, seconds)
        return Pair(await _slice(served, seconds), viewed)
    without = await _slice(served, seconds)
    return Pair(without, await _viewed(served, viewers, seconds))


async def _viewed(served: BenchServer, viewers: Viewers, seconds: float) -> Slice:
    await viewers.come()
    await asyncio.sleep(CONNECTED_SECONDS)
    try:
        return await _slice(served, seconds)
    finally:
        await viewers.go()


async def _slice(served: BenchServer, seconds: float) -> Slice:
    """Submits at a fixed rate: each slice does the same work."""
    loop = asyncio.get_running_loop()
    began, used = loop.time(), _cpu_seconds(served.pid)
    taken = await client.paced_latencies(served.port, RATE, seconds)
    spent = _cpu_seconds(served.pid) - used
    return Slice([each * 1000 for each in taken], spent, loop.time() - began)


async def _memory(served: BenchServer, viewers: Viewers) -> float:
    """The memory that viewers add, in MB. No submits: they would add to it."""
    before = served.megabytes()
    await viewers.come()
    await asyncio.sleep(SETTLING_SECONDS)
    added = served.megabytes() - before
    await viewers.go()
    return added


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- figures of the pairs ------------------------------------------------------------------------
def _p99s(pairs: Sequence[Pair]) -> tuple[float, float]:
    without = percentile((each for pair in pairs for each in pair.without.latencies), 99)
    viewed = percentile((each for pair in pairs for each in pair.viewed.latencies), 99)
    return without, viewed


def _change(pairs: Sequence[Pair]) -> float:
    """By how many percent the p99 over all slices is higher with viewers."""
    without, viewed = _p99s(pairs)
    return (viewed / without - 1) * 100


def interval(pairs: Sequence[Pair]) -> Interval:
    """The 95 % interval of the change: a bootstrap that draws pairs with replacement. Slices are
    drawn whole, because the latencies in one slice depend on each other."""
    draw = random.Random(SEED)
    changes = [_change(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES)]
    ranked = sorted(changes)
    return Interval(ranked[len(ranked) * 25 // 1000], ranked[len(ranked) * 975 // 1000])


def _cpu(pairs: Sequence[Pair]) -> float:
    without, viewed = ([pair[side] for pair in pairs] for side in (0, 1))
    return _share(viewed) - _share(without)


def _share(slices: Sequence[Slice]) -> float:
    return sum(each.cpu for each in slices) / sum(each.seconds for each in slices) * 100


# --- viewers -------------------------------------------------------------------------------------
class Viewers:
    """Viewers that read every frame, in a process of their own: reading must not delay the client
    that measures."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def come(self) -> None:
        """Connect them. Each has its first frame."""
        await self._say("come")

    async def go(self) -> None:
        await self._say("go")

    async def _say(self, word: str) -> None:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the viewers cannot be told")
        self._process.stdin.write(f"{word}\n".encode())
        if not await self._process.stdout.readline():
            raise RuntimeError("the viewers have ended")


@asynccontextmanager
async def _viewers(port: int) -> AsyncIterator[Viewers]:
    command = (sys.executable, "-m", "fairlane.bench.viewers", str(port))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        yield Viewers(process)
    finally:
        process.terminate()
        await process.wait()


async def _view(port: int) -> None:
    """Connects viewers and disconnects them, as each line of the input says."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    sockets: list[ClientConnection] = []
    reading: list[asyncio.Task[None]] = []
    async for line in reader:
        if line.strip() == b"come":
            sockets = await asyncio.gather(*(_connect(port) for _ in range(VIEWERS)))
            reading = [asyncio.create_task(_read(socket)) for socket in sockets]
        else:
            await asyncio.gather(*(socket.close() for socket in sockets))
            await asyncio.gather(*reading)
        sys.stdout.write("done\n")
        sys.stdout.flush()


async def _connect(port: int) -> ClientConnection:
    socket = await connect(f"ws://127.0.0.1:{port}/ws", compression=None, max_size=None)
    await socket.recv()
    return socket


async def _read(socket: ClientConnection) -> None:
    async for _ in socket:
        pass


if __name__ == "__main__":
    uvloop.run(_view(int(sys.argv[1])))
