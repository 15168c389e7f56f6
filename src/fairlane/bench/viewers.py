"""Dashboard benchmark: what viewers cost a server with a long queue. The server and the viewers are
processes of their own. Submits are measured with and without viewers in turn."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop
from websockets.asyncio.client import ClientConnection, connect

from fairlane.bench import http_client as client
from fairlane.bench.http_client import BenchServer
from fairlane.bench.measure import Figure

VIEWERS, WAITING = 100, 100_000
RATE, SECONDS = 200.0, 10.0
BATCH = 500
SETTLING_SECONDS = 3.0
SERVICES = "[services.noop]\nlimit = 8\n[services.other]\nlimit = 8\n"


def figures(runs: int, *, short: bool) -> Iterator[Figure]:
    waiting = 2_000 if short else WAITING
    seconds = 2.0 if short else SECONDS
    runs = 1 if short else runs
    yield from uvloop.run(_measured(runs, waiting, seconds))


async def _measured(runs: int, waiting: int, seconds: float) -> list[Figure]:
    without: list[float] = []
    with_viewers: list[float] = []
    memory: list[float] = []
    sampler: list[float] = []
    all_viewers: list[float] = []
    async with client.server(SERVICES) as served:
        await client.batch_submits(served.port, waiting, BATCH)
        await client.paced_submits(served.port, RATE, 2)
        for _ in range(runs):
            base = await _paced(served, seconds)
            async with _viewing(served, 1):
                one = await _paced(served, seconds)
            before = served.megabytes()
            async with _viewing(served, VIEWERS):
                await asyncio.sleep(SETTLING_SECONDS)  # submits would add to the memory
                memory.append(served.megabytes() - before)
                many = await _paced(served, seconds)
            without.append(base.p99)
            with_viewers.append(many.p99)
            sampler.append(one.cpu - base.cpu)
            all_viewers.append(many.cpu - base.cpu)
    pairs = zip(without, with_viewers, strict=True)
    change = [(other / base - 1) * 100 for base, other in pairs]
    here = f"{waiting:,} waiting jobs"
    paced = f"{RATE:g} jobs/s, {here}"
    crowd = f"{VIEWERS} viewers, {paced}"
    return [
        Figure("submit", f"{paced}, no viewer, p99", "ms", without),
        Figure("submit", f"{paced}, {VIEWERS} viewers, p99", "ms", with_viewers),
        Figure("submit", f"{VIEWERS} viewers, change of p99", "%", change),
        Figure("server memory", f"{crowd}, more than without", "MB", memory),
        Figure("processor time", f"1 viewer, {paced}, more than without", "% of a core", sampler),
        Figure("processor time", f"{crowd}, more than without", "% of a core", all_viewers),
    ]


@asynccontextmanager
async def _viewing(served: BenchServer, number: int) -> AsyncIterator[None]:
    """Viewers that read every frame, in a process of their own: reading must not delay the client
    that measures."""
    command = (sys.executable, "-m", "fairlane.bench.viewers", str(served.port), str(number))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        if process.stdout is None or not await process.stdout.readline():
            raise RuntimeError("the viewers did not start")
        yield
    finally:
        process.terminate()
        await process.wait()


async def _view(port: int, number: int) -> None:
    """Connects viewers, says so, and reads until the process ends."""
    async with AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(
                connect(f"ws://127.0.0.1:{port}/ws", compression=None, max_size=None)
            )
            for _ in range(number)
        ]
        for socket in sockets:
            await socket.recv()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.gather(*(_read(socket) for socket in sockets))


async def _read(socket: ClientConnection) -> None:
    async for _ in socket:
        pass


class PacedRun(NamedTuple):
    """The p99 of submits in ms, and the processor time of the server in percent of a core."""

    p99: float
    cpu: float


async def _paced(served: BenchServer, seconds: float) -> PacedRun:
    """Submits at a fixed rate: each run does the same work."""
    loop = asyncio.get_running_loop()
    began, used = loop.time(), _cpu_seconds(served.pid)
    speed = await client.paced_submits(served.port, RATE, seconds)
    share = (_cpu_seconds(served.pid) - used) / (loop.time() - began) * 100
    return PacedRun(speed.p99, share)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    uvloop.run(_view(int(sys.argv[1]), int(sys.argv[2])))
