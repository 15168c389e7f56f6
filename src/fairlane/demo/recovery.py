"""Recovery in the demo: restarts killed processes, and says what the demo waits for."""

from __future__ import annotations

import asyncio

from fairlane.demo.processes import DemoProcesses

ROUND_SECONDS = 2.0
"""Seconds between two sweeps, and between two updates of the screen."""


class DemoRecovery:
    """Starts processes in a thread: the demo's services and its screen continue meanwhile."""

    def __init__(self, processes: DemoProcesses) -> None:
        self._processes = processes
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
        dead = self._processes.ended
        if dead and self._starting is None:
            self._names, self._killed_at = [process.name for process in dead], now
            self._starting = asyncio.create_task(asyncio.to_thread(self._processes.restart_ended))
            news += [f"{name} was killed; starting it again" for name in self._names]
        return news

    async def end(self) -> None:
        """Returns when processes that are being started are up."""
        if self._starting is not None:
            await self._starting

    def waiting_for(self, held: int | None, now: float) -> str:
        """The reason why nothing happens, or an empty text. `held` are the slots without work, None
        while no API answers."""
        if self._starting is not None:
            names = ", ".join(self._names)
            return f"{names} to start ({now - self._killed_at:.0f} s)"
        if held is None:
            return "an API to answer"
        longest = self._processes.longest_hold
        if not self._up_at or not held or now > self._up_at + longest + ROUND_SECONDS:
            return ""
        return (
            f"the slots ({held}) of work that the killed process had begun: it may still run, so "
            f"the slots stay taken until their leases or time limits end, at most {longest:.0f} s "
            f"after the restart ({now - self._up_at:.0f} s ago)"
        )
