"""The tasks demo: four pull workers with capabilities and models, in processes of their own. One of
them is killed from time to time and comes back."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table

from fairlane.demo import display
from fairlane.demo.demo import Fate, Status
from fairlane.demo.processes import DemoProcesses, WorkerProcess
from fairlane.demo.screen import table
from fairlane.demo.task_workers import CAPACITIES, SPEED_VARIABLE
from fairlane.demo.traffic import YOU, Scene, Traffic, scenery
from fairlane.demo.users_demo import UsersDemo
from fairlane.demo.worker_log import WorkerLog
from fairlane.servers.process import send

UNRELIABLE_WORKER = "gpu_2"
FIRST_KILL_SECONDS, AWAY_SECONDS, KILL_EVERY_SECONDS = 12, 10, 45
"""Real seconds until the first kill, before the worker is started again, and from then to the next
kill. A process does not start faster because the demo does."""

LEASE_SECONDS = 5
"""After so long without a heartbeat the tasks of a killed worker wait again."""

GPU = {"required_capabilities": ["gpu"]}
REQUESTS: list[dict[str, Any]] = [
    {"feature_name": "draw", "model": "flux", **GPU},
    {"feature_name": "draw", "model": "sdxl", **GPU},
    {"feature_name": "transcribe", "model": "whisper", **GPU},
    {"feature_name": "report", "required_capabilities": ["large-memory"]},
    {"feature_name": "resize"},
]
SHARES = (2, 1, 1, 1, 5)
"""How often users submit each of these requests."""


def _request(chance: random.Random, _: str) -> dict[str, Any]:
    return chance.choices(REQUESTS, SHARES)[0]


TRAFFIC = Traffic(_request, mean_seconds_between_requests=10)


class TaskWorker(NamedTuple):
    name: str
    process: WorkerProcess
    log: WorkerLog

    @property
    def capacity(self) -> int:
        return CAPACITIES[self.name]

    @property
    def running(self) -> set[str]:
        return self.log.all_running(self.process.pid)


class TasksDemo(UsersDemo):
    preset = "tasks"
    title = "four pull workers with capabilities and models, seven users"
    default_speed = 20.0
    paths = ("/queue/status", "/api/v1/queue/stats")
    workers = tuple(f"fairlane.demo.task_workers:{name}" for name in CAPACITIES)
    waited = "a task waited for its worker"
    counted = "tasks above the limit of a worker"

    def __init__(self, speed: float | None = None) -> None:
        super().__init__(speed)
        self.fleet: list[TaskWorker] = []
        self.kills = 0
        self._begun: set[str] = set()

    @property
    def broken(self) -> int:
        return sum(max(0, each.log.most - each.capacity) for each in self.fleet)

    def scenery(self) -> AbstractAsyncContextManager[Scene]:
        return scenery(self.speed, TRAFFIC)

    def variables(self) -> dict[str, str]:
        own = {SPEED_VARIABLE: str(self.speed), "FAIRLANE_SERVER__LEASE": str(LEASE_SECONDS)}
        return {**super().variables(), **own}

    @asynccontextmanager
    async def playing(self, processes: DemoProcesses) -> AsyncIterator[None]:
        named = zip(CAPACITIES, processes.workers, strict=True)
        self.fleet = [TaskWorker(name, each, WorkerLog(each.log)) for name, each in named]
        async with super().playing(processes):
            yield

    async def incidents(self, processes: DemoProcesses) -> None:  # noqa: ARG002
        """Kills a worker from time to time, and lets it come back after a while."""
        (process,) = (each.process for each in self.fleet if each.name == UNRELIABLE_WORKER)
        pause = FIRST_KILL_SECONDS
        while True:
            await asyncio.sleep(pause)
            process.stays_away = True
            send(signal.SIGKILL, process.pids[:1])
            self.kills, self.scene.down = self.kills + 1, UNRELIABLE_WORKER
            await asyncio.sleep(AWAY_SECONDS)
            process.stays_away, self.scene.down = False, ""
            pause = KILL_EVERY_SECONDS

    def held(self, status: Status) -> int:
        self._read()
        counted = sum(int(each["running"]) for each in status.get("services", {}).values())
        return max(0, counted - sum(len(each.running) for each in self.fleet))

    def tables(self, status: Status) -> RenderableType:
        self._read()
        down = self.scene.down
        away = f" {down} is killed: its tasks wait again and run elsewhere." if down else ""
        return Group(
            self._workers(),
            _task_types(status),
            display.people(self.scene),
            display.note(
                "a task runs only on a worker that has its capability; no worker has more tasks "
                f"than it said; a loaded model is used again.{away}"
            ),
        )

    def _workers(self) -> Table:
        found = table(("worker", "tasks", "does"), ("most at once", "loads", "done"))
        for name, process, log in self.fleet:
            capacity, running = CAPACITIES[name], len(log.all_running(process.pid))
            does = "is away" if process.pid is None else "works" if running else "waits"
            if model := log.loading(process.pid):
                does = f"loads {model}"
            counts = (f"{log.most}/{capacity}", str(log.loads), str(len(log.done)))
            found.add_row(name, display.slots(running, capacity), does, *counts)
        return found

    def line(self, status: Status, seconds: float) -> str:
        self._read()
        return super().line(status, seconds)

    def last_lines(self, fate: Fate) -> list[str]:
        self._read()
        return super().last_lines(fate)

    def incident_line(self) -> str:
        loads = sum(each.log.loads for each in self.fleet)
        killed = display.times(self.kills)
        return f"{UNRELIABLE_WORKER} was killed {killed}; models were loaded {display.times(loads)}"

    def _read(self) -> None:
        """Tells the scene what the workers printed."""
        scene = self.scene
        for worker in self.fleet:
            worker.log.read()
            for job, at in worker.log.begun.items():
                sent = scene.accepted.get(job)
                if sent is not None and job not in self._begun:
                    self._begun.add(job)
                    scene.waits[sent.user].append(max(0.0, at - sent.at))
            for job in worker.log.done & scene.accepted.keys():
                scene.end(job, scene.accepted[job].user)
        running = [job for worker in self.fleet for job in worker.running]
        known = scene.accepted
        scene.running = Counter(known[job].user if job in known else YOU for job in running)


def _task_types(status: Status) -> Table:
    found = table(("task type",), ("running", "waiting"))
    for name, seen in sorted(status.get("services", {}).items()):
        found.add_row(name, str(seen["running"]), str(seen["waiting"] + seen["retry"]))
    return found
