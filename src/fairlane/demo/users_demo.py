"""What the demos with seven users in three tiers have in common: the users, and the summary."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fairlane.demo import display
from fairlane.demo.api_client import connected
from fairlane.demo.demo import Demo, Fate, Status, in_background
from fairlane.demo.processes import DemoProcesses
from fairlane.demo.traffic import DemoUsers, Scene, have_outages


class UsersDemo(Demo):
    paths: Sequence[str] = ("/queue/status",)
    scene: Scene

    waited = "a step waited for its slot"
    counted = "calls above a limit"
    """What the summary calls the waits, and what must not happen."""

    @property
    def accepted(self) -> Sequence[str]:
        return list(self.scene.accepted)

    @property
    def broken(self) -> int:
        """How often a limit was exceeded. The demo shows that this is 0."""
        return self.scene.broken

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with self.scenery() as self.scene:
            yield

    @abstractmethod
    def scenery(self) -> AbstractAsyncContextManager[Scene]:
        """Runs the simulated services and the Priority Service."""

    def variables(self) -> dict[str, str]:
        return {"FAIRLANE_PRIORITY__URL": self.scene.subscriptions.url}

    @asynccontextmanager
    async def playing(self, processes: DemoProcesses) -> AsyncIterator[None]:
        async with connected(processes.urls) as client:
            users = DemoUsers(self.scene, client)
            async with in_background(users.submit(), self.incidents(processes)):
                yield

    def incidents(self, processes: DemoProcesses) -> Coroutine[Any, Any, None]:  # noqa: ARG002
        """What goes wrong from time to time."""
        return have_outages(self.scene)

    def held(self, status: Status) -> int:
        services = self.service_status(status)
        return sum(
            max(0, services[service.name]["running"] - service.running)
            for service in self.scene.services
            if service.name in services
        )

    def service_status(self, status: Status) -> dict[str, Any]:
        """What the API tells of each simulated service, by its name."""
        return dict(status.get("services", {}))

    def line(self, status: Status, seconds: float) -> str:
        return display.line(status, self.scene, seconds, self.broken)

    def last_lines(self, fate: Fate) -> list[str]:
        waits = display.waits_of_tiers(self.scene)
        told = " · ".join(f"{tier} {p50}/{p95}" for tier, p50, p95 in waits)
        fates = f"{fate.done} done, {fate.live} waiting or running"
        failed = fate.failed + fate.cancelled
        return [
            f"{fate.accepted} jobs accepted: {fates}, {failed} failed, {fate.lost} lost",
            f"{self.waited}, p50/p95 in s: {told}",
            self.incident_line(),
            f"{self.broken} {self.counted}; the ledger is {fate.ledger}",
        ]

    @abstractmethod
    def incident_line(self) -> str:
        """What went wrong and was got over."""

    def is_sound(self, fate: Fate) -> bool:
        return fate.is_sound and not (fate.cancelled or self.broken)
