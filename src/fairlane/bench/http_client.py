"""HTTP benchmark client: a real server in a separate process, durable commits, plain sockets."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import resource
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, cast

import orjson

from fairlane.bench.measure import NAMES, PAYLOAD, USERS
from fairlane.bench.memory import megabytes
from fairlane.bench.percentiles import p50_and_p99
from fairlane.config.load import FILE, without_settings

CONNECTIONS = 50
HOST = "127.0.0.1"
QUIET = {"FAIRLANE_SERVER__LOG_LEVEL": "warning"}
"""Turns off the log line of every job: the benchmark measures the queue, not the terminal."""


class Speed(NamedTuple):
    """`rate`: jobs per second. `p50`, `p99`: request latency in milliseconds."""

    rate: float
    p50: float
    p99: float


class Sockets(NamedTuple):
    """The server's memory in MB, before and while the listeners are connected."""

    before: float
    after: float


# --- the server ----------------------------------------------------------------------------------
class BenchServer(NamedTuple):
    port: int
    pid: int

    def megabytes(self) -> float:
        return megabytes(self.pid)


@asynccontextmanager
async def server(
    settings: str = "", environment: Mapping[str, str] | None = None, parent: Path | None = None
) -> AsyncIterator[BenchServer]:
    """`fairlane serve` in a separate process, with an empty ledger and its default options; with
    these settings and environment variables, if given. The ledger is in a new folder of `parent`,
    or of the folder for temporary files."""
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-", dir=parent) as folder:
        if settings:
            (Path(folder) / FILE).write_text(settings)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fairlane", "serve", "--port", "0",
            cwd=folder, env={**without_settings(os.environ), **QUIET, **(environment or {})},
            stdout=PIPE,
        )  # fmt: skip
        try:
            yield BenchServer(await _port(process), process.pid)
        finally:
            process.terminate()
            await process.wait()


async def _port(process: asyncio.subprocess.Process) -> int:
    if process.stdout is None:
        raise RuntimeError("the server says nothing")
    async for line in process.stdout:
        found = re.search(rb"http://127\.0\.0\.1:(\d+)$", line.strip())
        if found is not None:
            return int(found[1])
    raise RuntimeError("the server did not start")


# --- a client ------------------------------------------------------------------------------------
class BenchClient(asyncio.Protocol):
    """One connection, one request at a time. Parses only what the benchmark needs."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._received = b""
        self.head = b""
        """The head (status line and headers) of the last answer."""

    @classmethod
    async def connect(cls, port: int) -> BenchClient:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(cls, HOST, port)
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("closed"))

    def send(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        if self._transport is None:
            raise ConnectionError("not connected")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or self._answer is None:
            return
        start = head.find(b"content-length: ") + 16
        size = int(head[start : head.find(b"\r", start) if b"\r" in head[start:] else None])
        if len(body) >= size:
            self._received, self.head = b"", head
            if not self._answer.done():
                self._answer.set_result((int(head[9:12]), body))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def job(i: int, name: str = "noop") -> dict[str, object]:
    return {
        "service": name,
        "user_id": f"user-{i % USERS}",
        "priority": NAMES[i % len(NAMES)],
        "input_data": PAYLOAD,
    }


def post(path: str, value: object) -> bytes:
    body = orjson.dumps(value)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def bare(method: str, path: str) -> bytes:
    """A request without a body."""
    return f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


async def _clients(port: int, number: int) -> list[BenchClient]:
    return [await BenchClient.connect(port) for _ in range(number)]


# --- figures -------------------------------------------------------------------------------------
async def single_submits(port: int, jobs: int, connections: int = CONNECTIONS) -> Speed:
    """Closed loop: each connection sends its next job when the last one is durable."""
    requests = iter([post("/api/v1/jobs", job(i)) for i in range(jobs)])
    taken: list[float] = []

    async def caller(client: BenchClient) -> None:
        for request in requests:
            begin = time.perf_counter()
            status, body = await client.send(request)
            taken.append(time.perf_counter() - begin)
            _demand(status == 202, body)
        client.close()

    clients = await _clients(port, connections)
    begin = time.perf_counter()
    await asyncio.gather(*(caller(client) for client in clients))
    return _speed(jobs, time.perf_counter() - begin, taken)


async def batch_submits(
    port: int, jobs: int, n: int, connections: int = 4, name: str = "noop"
) -> float:
    """Jobs per second, with n jobs per request."""
    batches = [
        post("/api/v1/jobs:batch", {"jobs": [job(i, name) for i in range(start, start + n)]})
        for start in range(0, jobs, n)
    ]
    requests = iter(batches)

    async def caller(client: BenchClient) -> None:
        for request in requests:
            status, body = await client.send(request)
            _demand(status == 200 and body.count(b'"status":202') == n, body)
        client.close()

    clients = await _clients(port, connections)
    begin = time.perf_counter()
    await asyncio.gather(*(caller(client) for client in clients))
    return len(batches) * n / (time.perf_counter() - begin)


async def paced_submits(port: int, rate: float, seconds: float) -> Speed:
    """Open loop: `rate` jobs per second, sent whether or not earlier ones are answered."""
    begin = time.perf_counter()
    taken = await paced_latencies(port, rate, seconds)
    return _speed(len(taken), time.perf_counter() - begin, taken)


async def paced_latencies(port: int, rate: float, seconds: float) -> list[float]:
    """The latency of each job of `paced_submits` in seconds. It counts from the scheduled time."""
    free: asyncio.Queue[BenchClient] = asyncio.Queue()
    for client in await _clients(port, CONNECTIONS):
        free.put_nowait(client)
    taken: list[float] = []
    begin = time.perf_counter()

    async def one(i: int) -> None:
        client = await free.get()
        status, body = await client.send(post("/api/v1/jobs", job(i)))
        taken.append(time.perf_counter() - begin - i / rate)
        free.put_nowait(client)
        _demand(status == 202, body)

    jobs = max(1, round(rate * seconds))
    async with asyncio.TaskGroup() as group:
        for i in range(jobs):
            early = i / rate - (time.perf_counter() - begin)
            if early > 0:
                await asyncio.sleep(early)
            group.create_task(one(i))
    while not free.empty():
        free.get_nowait().close()
    return taken


async def idle_sockets(served: BenchServer, number: int, seconds: float = 3) -> Sockets:
    """Connect `number` listeners, each to a waiting job, for `seconds` without a change."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * number), hard))
    client = await BenchClient.connect(served.port)
    status, body = await client.send(
        post("/api/v1/jobs:batch", {"jobs": [job(i) for i in range(number)]})
    )
    client.close()
    _demand(status == 200, body)
    jobs = [each["job"]["job_id"] for each in orjson.loads(body)["results"]]
    before = served.megabytes()
    writers = [await _listen(served.port, each) for each in jobs]
    await asyncio.sleep(seconds)  # each listener has received positions
    after = served.megabytes()
    for writer in writers:
        writer.close()
    return Sockets(before, after)


async def _listen(port: int, job_id: str) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 12)
    key = base64.b64encode(os.urandom(16)).decode()
    hello = (
        f"GET /ws/{job_id} HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    writer.write(hello.encode())
    head = await reader.readuntil(b"\r\n\r\n")
    _demand(b" 101 " in head, head)
    return writer


def _speed(jobs: int, took: float, taken: list[float]) -> Speed:
    p50, p99 = p50_and_p99(taken)
    return Speed(jobs / took, p50 * 1000, p99 * 1000)


def _demand(well: object, body: bytes) -> None:
    if not well:
        raise RuntimeError(f"not the answer that was expected: {body[:300]!r}")
