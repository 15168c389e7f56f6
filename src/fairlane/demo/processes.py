"""The demo's `fairlane` processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlane.api.server import bind
from fairlane.compose import migrated
from fairlane.config.load import FILE, load, preset_text, without_settings
from fairlane.config.settings import ServerSettings as Listening
from fairlane.config.settings import Settings
from fairlane.presets import gateway
from fairlane.servers import ServerProcess
from fairlane.servers.process import ask

PRESET = "gateway"
GRACE, LEEWAY = 2.0, 2.0
"""Grace time and the extra time after it, in seconds."""

READY = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class GatewayProcess(ServerProcess):
    """A `fairlane` process with these arguments, and with settings from these variables only."""

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        super().__init__()
        self._arguments, self._variables = arguments, variables

    @property
    def name(self) -> str:
        return f"fairlane {self._arguments[0]}"

    @property
    def pid(self) -> int | None:
        """The process id, or None if the process has ended."""
        return self.pids[0] if self.pids else None

    def leave(self) -> None:
        """Graceful shutdown: running calls get their grace time. The process has ended when it
        returns."""
        self._end(signal.SIGTERM)

    def _environment(self) -> dict[str, str]:
        return {**without_settings(os.environ), **self._variables}

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "fairlane", *self._arguments]


class ServeProcess(GatewayProcess):
    """Started when its port answers."""

    def __init__(self, more: Sequence[str], variables: Mapping[str, str], port: int = 0) -> None:
        super().__init__((), variables)
        self.port = port or self.port
        self._arguments = ("serve", "--port", str(self.port), *more)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _answers(self) -> bool:
        return ask(self.port, READY).startswith(b"HTTP/1.1 200")


class DispatchProcess(GatewayProcess):
    """Started when it has printed its first line."""

    _said = 0

    def _prepare(self) -> None:
        """Deletes the output of an earlier run."""
        log = self.folder / "log"
        self._said = log.stat().st_size if log.exists() else 0

    def _answers(self) -> bool:
        return b"dispatching to" in (self.folder / "log").read_bytes()[self._said :]


class Gateway:
    """All processes of one gateway: one process, or in a cluster two servers and two
    dispatchers."""

    def __init__(self, folder: Path, variables: Mapping[str, str], port: int) -> None:
        config = folder / FILE
        config.write_text(preset_text(PRESET))
        self.settings: Settings = load(config, environment=variables)
        named = ("--config", str(config))
        self._dispatchers: list[DispatchProcess] = []
        if self.settings.server.mode == "embedded":
            self.apis = [ServeProcess(named, variables, port)]
            return
        named_api = (*named, "--no-dispatch")
        self.apis = [ServeProcess(named_api, variables, wanted) for wanted in (port, 0)]
        arguments = ("dispatch", *named)
        self._dispatchers = [DispatchProcess(arguments, variables) for _ in range(2)]

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.apis]

    @property
    def processes(self) -> list[GatewayProcess]:
        return [*self.apis, *self._dispatchers]

    async def start(self) -> None:
        """Returns when all of them answer."""
        await migrated(self.settings)
        for process in self.processes:
            process.start()

    @property
    def longest_hold(self) -> float:
        """Seconds that a call of a killed process may keep its slot."""
        limits = [service.timeout for service in self.settings.catalog.services.values()]
        return max([self.settings.server.lease, *limits])

    def restart_ended(self) -> None:
        """Restarts processes that have ended. They answer when it returns."""
        for process in self.processes:
            if process.pid is None:
                process.start()

    async def leave(self) -> None:
        """Graceful shutdown of all processes together, while the simulated services still
        answer."""
        await asyncio.gather(*(asyncio.to_thread(each.leave) for each in self.processes))

    def stop(self) -> None:
        for process in self.processes:
            process.stop()


def free_port(wanted: int) -> int:
    """The port if it is free, any free port for 0. Otherwise the error says what to do."""
    with bind(Listening(port=wanted)) as found:
        return int(found.getsockname()[1])


def scaled(speed: float) -> dict[str, str]:
    """Environment variables that divide waits and time limits by `speed`. A call gets a little more
    than its share: only the services are faster, not this machine."""
    found = {"FAIRLANE_SERVER__GRACE": str(GRACE)}
    catalog = gateway()
    for service in catalog.services.values():
        limit = LEEWAY + service.timeout / speed
        found[f"FAIRLANE_SERVICES__{service.name.upper()}__TIMEOUT"] = str(limit)
    for tier in catalog.tiers.all:
        for better, after in tier.promote.items():
            name = f"FAIRLANE_TIERS__{tier.name.upper()}__PROMOTE__{better.upper()}"
            found[name] = str(after / speed)
    return found
