"""The gateway demo: four scarce services that are called, and seven users in three tiers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from rich.console import RenderableType

from fairlane.demo import display
from fairlane.demo.demo import Demo, Fate, Status
from fairlane.demo.processes import DemoProcesses
from fairlane.demo.traffic import Scene, playing, scenery


class GatewayDemo(Demo):
    preset = "gateway"
    title = "four scarce services, seven users"
    paths = ("/queue/status",)
    scene: Scene

    @property
    def accepted(self) -> Sequence[str]:
        return self.scene.accepted

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with scenery(self.speed) as self.scene:
            yield

    def variables(self) -> dict[str, str]:
        return self.scene.variables()

    def playing(self, processes: DemoProcesses) -> AbstractAsyncContextManager[None]:
        return playing(self.scene, processes.urls)

    def held(self, status: Status) -> int:
        services = status.get("services", {})
        return sum(
            max(0, services[service.name]["running"] - service.running)
            for service in self.scene.services
            if service.name in services
        )

    def tables(self, status: Status) -> RenderableType:
        return display.tables(status, self.scene)

    def line(self, status: Status, seconds: float) -> str:
        return display.line(status, self.scene, seconds)

    def last_lines(self, fate: Fate) -> list[str]:
        waits = display.waits_of_tiers(self.scene)
        told = " · ".join(f"{tier} {p50}/{p95}" for tier, p50, p95 in waits)
        fates = f"{fate.done} done, {fate.live} waiting or running"
        failed = fate.failed + fate.cancelled
        return [
            f"{fate.accepted} jobs accepted: {fates}, {failed} failed, {fate.lost} lost",
            f"a step waited for its slot, p50/p95 in s: {told}",
            f"{self.scene.hiccups} hiccups and {self.scene.outages} outages got over",
            f"{self.scene.broken} calls above a limit; the ledger is {fate.ledger}",
        ]

    def is_sound(self, fate: Fate) -> bool:
        return fate.is_sound and not (fate.cancelled or self.scene.broken)
