"""Injects the faults of a plan, and writes when each begins and ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable

from tests.chaos.plan import Fault
from tests.chaos.system import ChaosSystem

Step = Callable[[ChaosSystem, str], Awaitable[None]]


async def kill(system: ChaosSystem, target: str) -> None:
    await system.processes[target].end(signal.SIGKILL)


async def leave(system: ChaosSystem, target: str) -> None:
    await system.processes[target].end(signal.SIGTERM)


async def start(system: ChaosSystem, target: str) -> None:
    await system.processes[target].start()


async def stop(system: ChaosSystem, target: str) -> None:
    system.processes[target].signal(signal.SIGSTOP)


async def go_on(system: ChaosSystem, target: str) -> None:
    system.processes[target].signal(signal.SIGCONT)


async def cut(system: ChaosSystem, target: str) -> None:
    system.links[target].cut()


async def silence(system: ChaosSystem, target: str) -> None:
    system.links[target].silence()


async def end_silence(system: ChaosSystem, target: str) -> None:
    system.links[target].end_silence()


async def drop_replies(system: ChaosSystem, target: str) -> None:
    system.links[target].drop_replies()


async def refuse(system: ChaosSystem, target: str) -> None:
    system.links[target].refuse()


async def heal(system: ChaosSystem, target: str) -> None:
    system.links[target].go_on()


async def kill_server(system: ChaosSystem, target: str) -> None:
    await system.in_thread(system.server(target).kill)


async def start_server(system: ChaosSystem, target: str) -> None:
    await system.in_thread(system.server(target).start)


async def stop_server(system: ChaosSystem, target: str) -> None:
    system.signal_server(target, signal.SIGSTOP)


async def continue_server(system: ChaosSystem, target: str) -> None:
    system.signal_server(target, signal.SIGCONT)


async def fill(system: ChaosSystem, target: str) -> None:
    assert system.disk is not None
    system.disk.fill()


async def make_room(system: ChaosSystem, target: str) -> None:
    assert system.disk is not None
    system.disk.make_room()


async def nothing(system: ChaosSystem, target: str) -> None:
    """The fault is over at once."""


FAULTS: dict[str, tuple[str, Step, Step]] = {
    "kill": ("kill", kill, start),
    "pause": ("pause", stop, go_on),
    "restart": ("restart", leave, start),
    "cut": ("cut", cut, nothing),
    "half_open": ("half_open", silence, end_silence),
    "drop_replies": ("drop_replies", drop_replies, heal),
    "refuse": ("refuse", refuse, heal),
    "kill_redis": ("kill", kill_server, start_server),
    "kill_postgres": ("kill", kill_server, start_server),
    "pause_redis": ("pause", stop_server, continue_server),
    "pause_postgres": ("pause", stop_server, continue_server),
    "disk_full": ("disk_full", fill, make_room),
}
"""By name in the plan: the name in the history, how it begins, how it ends."""


class FaultInjector:
    """A target has one fault at a time: another one for it waits."""

    def __init__(self, system: ChaosSystem) -> None:
        self._system = system
        self._busy: dict[str, asyncio.Lock] = {}
        self._n = 0

    async def run(self, plan: Iterable[Fault]) -> None:
        """Returns when the last fault has ended."""
        clock = asyncio.get_running_loop()
        began = clock.time()
        async with asyncio.TaskGroup() as group:
            for fault in plan:
                await asyncio.sleep(max(0.0, began + fault.at - clock.time()))
                group.create_task(self._inject(fault))

    async def _inject(self, fault: Fault) -> None:
        kind, begin, end = FAULTS[fault.fault]
        system, target = self._system, fault.target
        async with self._busy.setdefault(target, asyncio.Lock()):
            self._n += 1
            name = f"fault-{self._n}"
            record = {"id": name, "fault": kind, "target": target}
            if kind == "kill":  # from here on the process is certainly dead
                await begin(system, target)
                system.history.note("fault", **record)
            else:
                system.history.note("fault", **record)
                await begin(system, target)
            await asyncio.sleep(fault.seconds)
            await end(system, target)
            system.history.note("fault_end", id=name)
