"""A simulated GPU for `fairlane bench --models`: it really takes time to load a model, and records
each job. As a pull worker it is one GPU, as a called service one GPU per slot."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from fairlane.worker import Context, Worker

STARTS, LOAD_SECONDS = "FAIRLANE_BENCH_STARTS", "FAIRLANE_BENCH_LOAD_SECONDS"
"""Environment variables: the file of the recorded starts, and the seconds of one load."""

NAME = "generate"
RECORD = struct.Struct("<qqqq")


class GpuStart(NamedTuple):
    """The start of one job's work, after the load of its model: the number of the job, when it was
    due to be submitted, when it started, and how long its model loaded (0 = it was loaded). Times
    are nanoseconds of the machine's monotonic clock."""

    number: int
    due: int
    started: int
    load: int

    @classmethod
    def read(cls, file: Path) -> list[GpuStart]:
        return [cls(*each) for each in RECORD.iter_unpack(file.read_bytes())]


class Gpu:
    """`load` returns how long it took, in nanoseconds."""

    def __init__(self) -> None:
        self._file = os.open(
            os.environ.get(STARTS, os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT
        )
        self._load_seconds = float(os.environ.get(LOAD_SECONDS, "0"))

    async def load(self) -> int:
        began = time.monotonic_ns()
        await asyncio.sleep(self._load_seconds)
        return time.monotonic_ns() - began

    async def work(self, number: int, due: int, seconds: float, load: int) -> None:
        os.write(self._file, RECORD.pack(number, due, time.monotonic_ns(), load))
        await asyncio.sleep(seconds)


def worker_of(gpu: Gpu) -> Worker:
    loads: list[int] = []

    async def load(name: str) -> str:
        loads.append(await gpu.load())
        return name

    made = Worker(capacity=1, loader=load, grace=0)

    @made.task(NAME)
    async def generate(number: int, due: int, seconds: float, ctx: Context) -> Any:
        await gpu.work(number, due, seconds, loads.pop() if loads else 0)
        return ctx.model

    return made


def service_of(gpu: Gpu) -> web.Application:
    """A called service: slot n is GPU n."""
    loaded: dict[int, str] = {}

    async def execute(request: web.Request) -> web.Response:
        sent = await request.json()
        meta, load = sent["meta"], 0
        if loaded.get(meta["slot"]) != meta["model"]:
            loaded[meta["slot"]] = meta["model"]
            load = await gpu.load()
        await gpu.work(**sent["payload"]["params"], load=load)
        metrics = {"load_seconds": load / 1e9} if load else {}
        return web.json_response({"data": meta["model"], "metrics": metrics})

    app = web.Application()
    app.router.add_post("/v1/execute", execute)
    return app


async def serve() -> None:
    """Serves until it is ended. The first line says where."""
    runner = web.AppRunner(service_of(Gpu()), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"http://127.0.0.1:{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


worker = worker_of(Gpu())

if __name__ == "__main__":
    asyncio.run(serve())
