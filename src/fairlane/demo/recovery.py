"""After a kill: who is started again, and what the demo is waiting for meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlane.demo.gateway import Gateway
from fairlane.demo.scene import Scene


class Recovery:
    """Processes start in a thread: the demo's services and its screen go on meanwhile."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._names: list[str] = []
        self._starting: asyncio.Task[None] | None = None
        self._killed_at: float | None = None

    def look(self, now: float) -> list[str]:
        """What is new, for people."""
        news = []
        if self._starting is not None and self._starting.done():
            self._starting.result()
            news += [f"{name} was killed; it has been started again" for name in self._names]
            self._starting = None
        dead = [process for process in self._gateway.processes if process.pid is None]
        if dead and self._starting is None:
            self._names, self._killed_at = [process.name for process in dead], now
            self._starting = asyncio.create_task(asyncio.to_thread(self._gateway.mend))
            news += [f"{name} was killed; starting it again" for name in self._names]
        return news

    async def end(self) -> None:
        """Whoever is being started is up when it returns."""
        if self._starting is not None:
            await self._starting

    def waiting_for(self, status: dict[str, Any] | None, scene: Scene, now: float) -> str:
        """Why nothing seems to happen, if that is so. `status` is None while no API answers."""
        if self._starting is not None:
            names = ", ".join(self._names)
            return f"{names} to start ({now - (self._killed_at or now):.0f} s)"
        if status is None:
            return "an API to answer"
        held = sum(_held(status, scene).values())
        if self._killed_at is None or not held:
            return ""
        which = "call" if held == 1 else "calls"
        return (
            f"{held} {which} of the killed process to be given up: they may still run, so their "
            f"slots stay taken until their leases or time limits end, at most "
            f"{self._gateway.longest_hold:.0f} s after the kill "
            f"({now - self._killed_at:.0f} s ago)"
        )


def _held(status: dict[str, Any], scene: Scene) -> dict[str, int]:
    """Slots that the queue keeps taken although the service runs nothing in them."""
    services = status.get("services", {})
    return {
        service.name: max(0, services[service.name]["running"] - service.running)
        for service in scene.services
        if service.name in services
    }
