"""Recovery in the demo: restarts killed processes, and says what the demo waits for."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlane.demo.processes import Gateway
from fairlane.demo.traffic import Scene

ROUND_SECONDS = 2.0
"""Seconds between two sweeps, and between two updates of the screen."""


class DemoRecovery:
    """Starts processes in a thread: the demo's services and its screen continue meanwhile."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._names: list[str] = []
        self._starting: asyncio.Task[None] | None = None
        self._killed_at = self._up_at = 0.0

    def look(self, now: float) -> list[str]:
        """New messages for the screen."""
        news = []
        if self._starting is not None and self._starting.done():
            self._starting.result()
            news += [f"{name} was killed; it has been started again" for name in self._names]
            self._starting, self._up_at = None, now
        dead = [process for process in self._gateway.processes if process.pid is None]
        if dead and self._starting is None:
            self._names, self._killed_at = [process.name for process in dead], now
            self._starting = asyncio.create_task(asyncio.to_thread(self._gateway.restart_ended))
            news += [f"{name} was killed; starting it again" for name in self._names]
        return news

    async def end(self) -> None:
        """Returns when processes that are being started are up."""
        if self._starting is not None:
            await self._starting

    def waiting_for(self, status: dict[str, Any] | None, scene: Scene, now: float) -> str:
        """The reason why nothing happens, or an empty text. `status` is None while no API
        answers."""
        if self._starting is not None:
            names = ", ".join(self._names)
            return f"{names} to start ({now - self._killed_at:.0f} s)"
        if status is None:
            return "an API to answer"
        held, longest = sum(_held(status, scene).values()), self._gateway.longest_hold
        if not self._up_at or not held or now > self._up_at + longest + ROUND_SECONDS:
            return ""
        return (
            f"{held} slots of calls that the killed process had begun: the calls may still run, so "
            f"the slots stay taken until their leases or time limits end, at most {longest:.0f} s "
            f"after the restart ({now - self._up_at:.0f} s ago)"
        )


def _held(status: dict[str, Any], scene: Scene) -> dict[str, int]:
    """Slots that the queue counts as taken although the service runs no call in them."""
    services = status.get("services", {})
    return {
        service.name: max(0, services[service.name]["running"] - service.running)
        for service in scene.services
        if service.name in services
    }
