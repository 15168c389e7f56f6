"""The generation demo: one GPU with two models, users of five tiers, quotas and paid skips."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rich.console import RenderableType

from fairlane.demo import generation_display as display
from fairlane.demo.api_client import connected
from fairlane.demo.demo import Demo, Fate, Status, in_background
from fairlane.demo.gpu import SPEED_VARIABLE
from fairlane.demo.processes import DemoProcesses, WorkerProcess
from fairlane.demo.visitors import Visitors, Visits
from fairlane.demo.worker_log import WorkerLog

LEASE_SECONDS = 5
"""After so long without a heartbeat the job of a killed GPU waits again."""


class GenerationDemo(Demo):
    preset = "generation"
    title = "one GPU with two models, users of five tiers, paid skips"
    paths = ("/queue-status", "/status", "/api/queue?limit=100")
    default_speed = 10.0
    workers = ("fairlane.demo.gpu:worker",)
    gpu: WorkerLog
    process: WorkerProcess

    def __init__(self, speed: float) -> None:
        super().__init__(speed)
        self.visits = Visits()

    @property
    def accepted(self) -> Sequence[str]:
        return list(self.visits.accepted)

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        yield

    def variables(self) -> dict[str, str]:
        return {SPEED_VARIABLE: str(self.speed), "FAIRLANE_SERVER__LEASE": str(LEASE_SECONDS)}

    @asynccontextmanager
    async def playing(self, processes: DemoProcesses) -> AsyncIterator[None]:
        (self.process,) = processes.workers
        self.gpu = WorkerLog(self.process.log)
        async with connected(processes.urls) as client:
            visitors = Visitors(self.visits, client, self.speed)
            async with in_background(visitors.come()):
                yield

    def held(self, status: Status) -> int:
        self.gpu.read()
        is_idle = self.gpu.is_new(self.process.pid)
        return int(is_idle and status["running"])

    def tables(self, status: Status) -> RenderableType:
        self._read(status)
        return display.tables(self._picture(status))

    def line(self, status: Status, seconds: float) -> str:
        self._read(status)
        return display.line(self._picture(status), seconds)

    def _read(self, status: Status) -> None:
        self.gpu.read()
        self.visits.waiting = status.get("queue_length", 0)

    def _picture(self, status: Status) -> display.Picture:
        return display.Picture(status, self.visits, self.gpu, self.process.pid)

    def last_lines(self, fate: Fate) -> list[str]:
        self.gpu.read()
        visits, gpu = self.visits, self.gpu
        waits = [(tier, *display.waits_of(tier, visits, gpu)) for tier in display.TIERS]
        told = " · ".join(f"{tier} {p50}/{p95}" for tier, p50, p95 in waits)
        fates = (
            f"{fate.done} done, {fate.live} waiting or running, {fate.cancelled} cancelled, "
            f"{fate.failed} failed, {fate.lost} lost"
        )
        return [
            f"{fate.accepted} jobs accepted: {fates}",
            f"{visits.refused.total()} refused: {display.refusals(visits) or 'none'}",
            f"a job waited for the GPU, p50/p95 in s: {told}",
            display.paid_skips(visits),
            display.loads(visits, gpu),
            f"the ledger is {fate.ledger}",
        ]

    def is_sound(self, fate: Fate) -> bool:
        return fate.is_sound
