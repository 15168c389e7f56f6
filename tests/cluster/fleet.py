"""A queue on real servers, and real processes that share it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self

from redis.asyncio import Redis

from fairlane.clock import ManualClock
from fairlane.compose import cluster
from fairlane.engine import Engine
from fairlane.ledger.messages import Filter
from fairlane.model.attempt import Attempt, Outcome
from fairlane.model.catalog import Catalog
from fairlane.model.catalog_text import catalog_text
from fairlane.model.job import Job, NewJob
from fairlane.model.lease import Lease
from fairlane.model.state import State
from tests.cluster.points import What
from tests.core import core_of
from tests.crash.life import as_json, from_json
from tests.world import World

ROOT = Path(__file__).parents[2]
LONG_ENOUGH = 60.0
"""Seconds after which what should have happened is not going to."""


class Gone(Exception):
    """The process died before it answered."""


class Failed(Exception):
    """What the process could not do, and why."""


class Nursery:
    """Where processes come from: a program that has imported everything and forks."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fairlane-nursery-")
        self._path = str(Path(self._folder.name) / "door")
        self._program: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.process", self._path],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert self._program.stdout
        assert self._program.stdout.readline() == b"ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._program.wait()
        assert self._program.stdout
        self._program.stdout.close()
        self._folder.cleanup()

    async def process(self) -> Process:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=1 << 24)
        process = Process(reader, writer)
        process.pid = await process.ask("pid")
        return process


class Process:
    """A process that obeys, and what it has said so far."""

    pid: int

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._news = asyncio.Event()
        self._listener = asyncio.create_task(self._listen())
        self.said: list[list[Any]] = []
        self.is_gone = False

    def tell(self, verb: str, **arguments: Any) -> asyncio.Future[Any]:
        """The order is on its way; the answer comes later."""
        number = next(self._numbers)
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        if self.is_gone:
            future.set_exception(Gone())
        else:
            self._writer.write(json.dumps([number, verb, arguments]).encode() + b"\n")
        return future

    async def ask(self, verb: str, **arguments: Any) -> Any:
        async with asyncio.timeout(LONG_ENOUGH):
            return await self.tell(verb, **arguments)

    async def plan(self, what: What, point: str) -> None:
        await self.ask("plan", point=point, what=what)

    async def let_go(self, point: str) -> None:
        await self.ask("let_go", point=point)

    async def claim(self, n: int = 1, worker: str = "w", **more: Any) -> list[Lease]:
        found = await self.ask("claim", worker=worker, n=n, **more)
        return [from_json(lease) for lease in found]

    async def complete(self, leases: Sequence[Lease], **more: Any) -> list[list[Any]]:
        """[state, ended parent] each, or [state] if it is stale."""
        found = await self.ask("complete", leases=[as_json(each) for each in leases], **more)
        return list(found)

    def keep_submitting(self, at_once: int) -> None:
        self.tell("keep_submitting", at_once=at_once)

    def heard(self, kind: str) -> list[list[Any]]:
        """What it has said of this kind, without the kind."""
        return [words[1:] for words in self.said if words[0] == kind]

    async def until(self, check: Callable[[], bool]) -> None:
        """Returns when what it has said makes this true."""
        async with asyncio.timeout(LONG_ENOUGH):
            while not check():
                if self.is_gone:
                    raise Gone
                self._news.clear()
                await self._news.wait()

    async def reached(self, point: str, times: int = 1) -> None:
        await self.until(lambda: self.heard("reached").count([point]) >= times)

    async def gone(self) -> None:
        """Returns when it is dead."""
        async with asyncio.timeout(LONG_ENOUGH):
            await asyncio.shield(self._listener)

    def pause(self) -> None:
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    async def kill(self) -> None:
        self._send(signal.SIGKILL)
        await self.gone()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def _send(self, number: signal.Signals) -> None:
        if not self.is_gone:
            os.kill(self.pid, number)

    async def _listen(self) -> None:
        with suppress(OSError):
            while line := await self._reader.readline():
                self._hear(json.loads(line))
                self._news.set()
        self.is_gone = True
        for future in self._asked.values():
            if not future.done():
                future.set_exception(Gone())
                future.exception()  # whoever still waits hears of it, nobody else has to
        self._news.set()

    def _hear(self, words: list[Any]) -> None:
        match words:
            case ["answer", number, value]:
                if not self._asked[number].done():
                    self._asked.pop(number).set_result(value)
            case ["error", number, kind, text]:
                future = self._asked.pop(number)
                if not future.done():
                    future.set_exception(Failed(kind, text))
                    future.exception()
            case _:
                self.said.append(words)


class Fleet:
    """One queue: a database, a prefix, the settings, a clock that the test moves. Opens worlds in
    the process of the test, and processes. All of them are gone when it is left."""

    def __init__(self, nursery: Nursery, database: str, redis: str, settings: Catalog) -> None:
        self._nursery = nursery
        self.database, self.redis, self.settings = database, redis, settings
        self.prefix = f"{{{secrets.token_hex(6)}}}:"
        self.clock = ManualClock()
        self.processes: list[Process] = []
        self.worlds: list[World] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Each of them, also when one cannot be stopped: the next test finds none left over."""
        async with AsyncExitStack() as stack:
            for world in self.worlds:
                stack.push_async_callback(world.engine.stop)
            for process in self.processes:
                stack.push_async_callback(process.kill)

    async def open(
        self,
        settings: Catalog,
        path: Path,
        clock: ManualClock,
        seed: int,
        connection: type[sqlite3.Connection],
    ) -> Engine:
        """The stores of a world."""
        return await cluster(
            settings,
            self.database,
            self.redis,
            clock=clock,
            sweeping=False,
            seed=seed,
            prefix=self.prefix,
        )

    async def world(self) -> World:
        world = World(self.settings, Path("cluster"), where=self)
        world.clock, world.starts = self.clock, 1000 * (len(self.worlds) + 1)
        await world.start()
        self.worlds.append(world)
        return world

    async def process(self) -> Process:
        """Born, but nothing is open yet."""
        process = await self._nursery.process()
        self.processes.append(process)
        return process

    async def opened(
        self, process: Process | None = None, *, real_time: bool = False, **other: Any
    ) -> Process:
        """A process that shares the queue. In real time it sweeps by itself."""
        process = process or await self.process()
        place = {
            "catalog": catalog_text(self.settings),
            "database": self.database,
            "redis": self.redis,
            "prefix": self.prefix,
        }
        now = 0 if real_time else self.clock.now()
        await process.ask("open", **{**place, "now": now, "sweeping": real_time, **other})
        return process

    async def many(self, n: int, **more: Any) -> list[Process]:
        return list(await asyncio.gather(*(self.opened(**more) for _ in range(n))))


async def flush(redis: str) -> None:
    """The server forgets everything."""
    async with Redis.from_url(redis) as server:
        await server.flushall()


async def comes_true(check: Callable[[], Awaitable[bool]], within: float = LONG_ENOUGH) -> None:
    """Returns when the check says so; looks again and again."""
    async with asyncio.timeout(within):
        while not await check():  # noqa: ASYNC110 - what other processes do sets no event here
            await asyncio.sleep(0.02)


async def everything_ran_once(world: World) -> list[Job]:
    """All jobs are over, each step has one result, and the ledger finds nothing wrong."""
    jobs = await all_jobs(world)
    for job in jobs:
        assert not job.live, job
        tries = await world.engine.attempts(job.id)
        done = [(each.step, each.outcome) for each in tries if each.outcome is Outcome.COMPLETED]
        assert len(done) == len(set(done)), tries
        if job.state is State.COMPLETED and not job.fan_out:
            assert len(done) == len(job.plan), tries
        assert_one_lease_at_a_time(tries)
    await world.healthy()
    return jobs


async def all_over(world: World) -> bool:
    """Counted in one statement: a job that goes back in line meanwhile is in one of the counts."""
    return not sum(await core_of(world.engine).ledger.load())


def assert_one_lease_at_a_time(attempts: Sequence[Attempt]) -> None:
    in_order = sorted(attempts, key=lambda each: each.fence)
    for before, after in itertools.pairwise(in_order):
        assert after.started_at >= before.ended_at, (before, after)


async def all_jobs(world: World) -> list[Job]:
    jobs: list[Job] = []
    cursor = None
    while True:
        page = await world.engine.list_jobs(Filter(), cursor, 500)
        jobs += page.jobs
        cursor = page.next
        if cursor is None:
            return jobs


def as_order(jobs: Sequence[NewJob]) -> list[dict[str, Any]]:
    """Jobs as they are put into an order for a process."""
    usual = NewJob("")
    return [
        {name: value for name, value in job._asdict().items() if value != getattr(usual, name)}
        for job in jobs
    ]
