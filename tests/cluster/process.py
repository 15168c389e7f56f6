"""One process of a cluster, which does what it is told line by line.

    python -m tests.cluster.process SOCKET

Imports everything once and waits at the socket. Every connection becomes a process of its own, with
an engine of its own. A line is an order: [number, verb, arguments]. What it says are lines too:
["answer", number, value], ["error", number, kind, text], and in between what happens:
["reached", point], ["granted", job, …], ["finished", job, …]."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, cast

from fairlane.clock import Clock, ManualClock, SystemClock, seconds
from fairlane.compose import cluster
from fairlane.engine import Engine
from fairlane.engine.outbox_relay import publish_left_behind
from fairlane.engine.settle import Done
from fairlane.errors import FairlaneError, StaleLease
from fairlane.index.redis import RedisIndex
from fairlane.ledger.messages import Settled
from fairlane.ledger.postgres import PostgresLedger
from fairlane.ledger.postgres import writer as writing
from fairlane.ledger.postgres.transaction import PostgresTransaction
from fairlane.model.attempt import Fault
from fairlane.model.catalog_text import catalog_of
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.worker import Worker
from tests.cluster.points import Points, Watched, What
from tests.core import core_of
from tests.crash.life import as_json, from_json

AFTER_TROUBLE = 0.05
"""Seconds that somebody rests whose call has failed."""


class Process:
    """The verbs are its public methods."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._points = Points(self._say)
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock: Clock
        self._engine: Engine

    async def live(self, reader: asyncio.StreamReader) -> None:
        """Until whoever gives the orders is gone."""
        while line := await reader.readline():
            number, verb, arguments = json.loads(line)
            task = asyncio.create_task(self._obey(number, verb, arguments))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _obey(self, number: int, verb: str, arguments: dict[str, Any]) -> None:
        try:
            self._say("answer", number, await getattr(self, verb)(**arguments))
        except Exception as error:  # noqa: BLE001 - whoever gave the order wants to know
            self._say("error", number, type(error).__name__, str(error))

    def _say(self, *words: Any) -> None:
        self._writer.write(json.dumps(words).encode() + b"\n")

    # --- its life ----------------------------------------------------------------------------
    async def pid(self) -> int:
        return os.getpid()

    async def plan(self, point: str, what: What) -> None:
        self._points.plan(point, what)

    async def let_go(self, point: str) -> None:
        self._points.let_go(point)

    async def passed(self) -> list[str]:
        """The points since the last time it was asked."""
        passed, self._points.passed = self._points.passed, []
        return passed

    async def open(
        self, catalog: str, database: str, redis: str, prefix: str, now: int, sweeping: bool
    ) -> None:
        """With a clock that is moved by orders, unless `now` is 0."""
        self._clock = ManualClock(now) if now else SystemClock()
        points, settings = self._points, catalog_of(catalog)
        self._engine = await cluster(
            settings, database, redis, clock=self._clock, sweeping=sweeping, prefix=prefix
        )
        core = core_of(self._engine)
        vars(core.index)["_run"] = watched_opening(core.index, points)
        core.ledger = cast(PostgresLedger, Watched(core.ledger, "ledger", points))
        core.index = cast(RedisIndex, Watched(core.index, "index", points))
        vars(writing)["PostgresTransaction"] = watched_transaction(points)
        await self._engine.start()

    async def stop(self) -> None:
        await self._engine.stop()

    async def advance(self, duration: float) -> None:
        assert isinstance(self._clock, ManualClock)
        self._clock.advance(seconds(duration))

    # --- callers -----------------------------------------------------------------------------
    async def submit(self, jobs: list[dict[str, Any]]) -> list[str]:
        outcomes = await self._engine.submit_many([NewJob(**job) for job in jobs])
        for outcome in outcomes:
            if isinstance(outcome, FairlaneError):
                raise outcome
        return [cast(Any, outcome).job for outcome in outcomes]

    async def keep_submitting(self, at_once: int) -> None:
        """One by one, in this many lines, for ever; each is told when it was accepted."""

        async def one() -> None:
            while True:
                began = time.monotonic()
                try:
                    accepted = await self._engine.submit(NewJob("work"))
                    self._say("accepted", accepted.job, time.monotonic())
                except Exception as error:  # noqa: BLE001 - told, and tried again
                    await self._trouble("submit", error, began)

        await asyncio.gather(*(one() for _ in range(at_once)))

    async def cancel(self, job: str) -> None:
        await self._engine.cancel(job)

    async def change(self, name: str, setting: str, value: int | bool) -> None:
        await self._engine.change("services", name, setting, value)

    # --- workers -----------------------------------------------------------------------------
    async def claim(
        self, worker: str, n: int, wait: float = 0, heartbeat: float = 5
    ) -> list[dict[str, Any]]:
        found = await self._engine.claim(_worker(worker, heartbeat), n, wait=wait)
        return [as_json(lease) for lease in found]

    async def complete(self, leases: list[dict[str, Any]], at_once: bool = False) -> list[Any]:
        """[state, ended parent] each, or [state] if it is stale. All at once, each in a call of its
        own, or in one call."""
        reports = [Done(from_json(lease), {"token": lease["token"]}) for lease in leases]
        if at_once:
            calls = await asyncio.gather(*(self._engine.settle([each]) for each in reports))
            outcomes = [outcome for call in calls for outcome in call]
        else:
            outcomes = await self._engine.settle(reports)
        return [
            [outcome.state, outcome.ended_parent]
            if isinstance(outcome, Settled)
            else [outcome.state]
            for outcome in outcomes
        ]

    async def fail(self, leases: list[dict[str, Any]]) -> None:
        for lease in leases:
            await self._engine.fail(from_json(lease), Fault.TRANSIENT)

    async def give_back(self, leases: list[dict[str, Any]]) -> None:
        for lease in leases:
            await self._engine.give_back(from_json(lease))

    async def work(self, worker: str, at_once: int, lasts: float, heartbeat: float = 5) -> None:
        """Claims and completes for ever, so many at once; each job takes this many seconds."""
        who = _worker(worker, heartbeat)
        await asyncio.gather(*(self._work(who, lasts) for _ in range(at_once)))

    async def _work(self, worker: Worker, lasts: float) -> None:
        while True:
            began = time.monotonic()
            try:
                leases = await self._engine.claim(worker, 1, wait=60)
            except Exception as error:  # noqa: BLE001 - told, and tried again
                await self._trouble("claim", error, began)
                continue
            for lease in leases:
                self._say("granted", lease.job, lease.fence, time.monotonic(), lease.attempt)
                await self._run(worker, lease, lasts)
                await self._finish(lease)

    async def _finish(self, lease: Lease) -> None:
        """Tries until it is known what has become of the result."""
        while True:
            began = time.monotonic()
            try:
                await self._engine.complete(lease, {"token": lease.token})
                self._say("finished", lease.job, lease.fence, time.monotonic())
            except StaleLease:
                self._say("stale", lease.job, lease.fence, time.monotonic())
            except Exception as error:  # noqa: BLE001 - told, and tried again
                await self._trouble("complete", error, began)
                continue
            return

    async def _run(self, worker: Worker, lease: Lease, lasts: float) -> None:
        """The work: it takes time, and the lease is renewed every third of it."""
        over = time.monotonic() + lasts
        while (left := over - time.monotonic()) > 0:
            await asyncio.sleep(min(left, worker.heartbeat / 1e6))
            if over > time.monotonic():
                began = time.monotonic()
                try:
                    await self._engine.heartbeat(worker, [lease])
                except Exception as error:  # noqa: BLE001 - told, and tried again
                    await self._trouble("heartbeat", error, began)

    async def _trouble(self, verb: str, error: Exception, began: float) -> None:
        now = time.monotonic()
        self._say("trouble", verb, type(error).__name__, str(error), now - began, now)
        await asyncio.sleep(AFTER_TROUBLE)

    # --- upkeep ------------------------------------------------------------------------------
    async def sweep(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            await self._engine.sweep()

    async def publish(self) -> int:
        return await publish_left_behind(core_of(self._engine))

    async def rebuild(self) -> None:
        await self._engine.rebuild()

    async def life(self) -> str:
        return core_of(self._engine).epoch


def watched_opening(index: Any, points: Points) -> Any:
    """What runs the index's scripts, with a point inside `open`: whenever some have lined up."""
    run = vars(index)["_run"]

    async def watched(verb: str, *arguments: Any) -> Any:
        result = await run(verb, *arguments)
        if verb == "open":
            await points.reach("in index.open")
        return result

    return watched


def watched_transaction(points: Points) -> type[PostgresTransaction]:
    """A transaction with a point in its middle: after its first statement."""

    class WatchedTransaction(PostgresTransaction):
        def __init__(self, connection: Any) -> None:
            super().__init__(connection)
            execute = self.execute

            async def watched(*args: Any) -> Any:
                result = await execute(*args)
                await points.reach("in a transaction")
                return result

            self.execute = cast(Any, watched)

    return WatchedTransaction


def _worker(name: str, heartbeat: float) -> Worker:
    return Worker(name, heartbeat=seconds(heartbeat))


# --- the program -----------------------------------------------------------------------------
def main(arguments: Sequence[str]) -> None:
    _tie_to_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as app_context:
        app_context.bind(arguments[0])
        app_context.listen()
        print("ready", flush=True)
        while True:
            connection, _ = app_context.accept()
            if os.fork() == 0:
                break
            connection.close()
    _tie_to_parent()
    logging.disable(logging.WARNING)
    asyncio.run(_live(connection))


async def _live(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 24)
    await Process(writer).live(reader)
    os._exit(0)


def _tie_to_parent() -> None:
    """However the test run ends, this process ends with it."""
    if prctl := getattr(ctypes.CDLL(None), "prctl", None):
        prctl(1, int(signal.SIGKILL), 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
