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
from fairlane.model.service import Executor
from fairlane.presets import PRESETS
from fairlane.servers import ServerProcess
from fairlane.servers.process import ask

GRACE, LEEWAY = 2.0, 2.0
"""Grace time and the extra time after it, in seconds."""

READY = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class FairlaneProcess(ServerProcess):
    """A `fairlane` process with these arguments, and with settings from these variables only. While
    it `stays_away`, the demo does not restart it."""

    stays_away = False

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


class ServeProcess(FairlaneProcess):
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


class ReportingProcess(FairlaneProcess):
    """Started when it has printed a line with this text."""

    ready: bytes
    _said = 0

    @property
    def log(self) -> Path:
        """What all its runs printed."""
        return self.folder / "log"

    def _prepare(self) -> None:
        """Skips the output of an earlier run."""
        self._said = self.log.stat().st_size if self.log.exists() else 0

    def _answers(self) -> bool:
        return self.ready in self.log.read_bytes()[self._said :]


class DispatchProcess(ReportingProcess):
    ready = b"dispatching to"


class WorkerProcess(ReportingProcess):
    """`fairlane worker` with the worker of this module, connected to this URL."""

    ready = b"registered as"

    def __init__(self, module: str, url: str, variables: Mapping[str, str]) -> None:
        super().__init__(("worker", module, "--url", url), variables)


class DemoProcesses:
    """All processes of one demo: a server, or in a cluster two servers, and two dispatchers if
    services are called. Each of `modules` is run by a worker."""

    def __init__(
        self,
        folder: Path,
        preset: str,
        variables: Mapping[str, str],
        port: int,
        modules: Sequence[str] = (),
    ) -> None:
        config = folder / FILE
        config.write_text(preset_text(preset))
        self.settings: Settings = load(config, environment=variables)
        called = any(self._is_called(each) for each in self.settings.catalog.services)
        named = ("--config", str(config))
        self._dispatchers: list[DispatchProcess] = []
        if self.settings.server.mode == "embedded":
            self.apis = [ServeProcess(named, variables, port)]
        else:
            named_api = (*named, "--no-dispatch")
            self.apis = [ServeProcess(named_api, variables, wanted) for wanted in (port, 0)]
            arguments = ("dispatch", *named)
            self._dispatchers = [DispatchProcess(arguments, variables) for _ in "12" if called]
        self.workers = [WorkerProcess(each, self.urls[0], variables) for each in modules]

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.apis]

    @property
    def all(self) -> list[FairlaneProcess]:
        return [*self.apis, *self._dispatchers, *self.workers]

    async def start(self) -> None:
        """Returns when all of them answer."""
        await migrated(self.settings)
        for process in self.all:
            process.start()

    @property
    def longest_hold(self) -> float:
        """Seconds that the work of a killed process may keep its slot."""
        services = self.settings.catalog.services
        limits = [each.timeout for name, each in services.items() if self._is_called(name)]
        return max([self.settings.server.lease, *limits])

    def _is_called(self, service: str) -> bool:
        return self.settings.catalog.services[service].executor is Executor.HTTP

    @property
    def ended(self) -> list[FairlaneProcess]:
        """The processes that have ended and are to be restarted."""
        return [each for each in self.all if each.pid is None and not each.stays_away]

    def restart_ended(self) -> None:
        """Restarts processes that have ended. They answer when it returns."""
        for process in self.ended:
            process.start()

    async def leave(self) -> None:
        """Graceful shutdown: workers first, so that they can report, then all others together,
        while the simulated services still answer."""
        for group in (self.workers, [*self.apis, *self._dispatchers]):
            await asyncio.gather(*(asyncio.to_thread(each.leave) for each in group))

    def stop(self) -> None:
        for process in self.all:
            process.stop()


def free_port(wanted: int) -> int:
    """The port if it is free, any free port for 0. Otherwise the error says what to do."""
    with bind(Listening(port=wanted)) as found:
        return int(found.getsockname()[1])


def scaled(preset: str, speed: float) -> dict[str, str]:
    """Environment variables that divide waits and time limits by `speed`. A call gets a little more
    than its share: only the services are faster, not this machine."""
    found = {
        "FAIRLANE_SERVER__GRACE": str(GRACE),
        "FAIRLANE_SERVER__SIMULATED_SPEED": str(speed),
    }
    catalog = PRESETS[preset]()
    for service in catalog.services.values():
        settings = f"FAIRLANE_SERVICES__{service.name.upper()}"
        if service.timeout:
            found[f"{settings}__TIMEOUT"] = str(LEEWAY + service.timeout / speed)
        if service.backoff:
            found[f"{settings}__BACKOFF"] = str([pause / speed for pause in service.backoff])
        found[f"{settings}__MODEL_LOAD"] = str(service.model_load / speed)
    for tier in catalog.tiers.all:
        if tier.target:
            found[f"FAIRLANE_TIERS__{tier.name.upper()}__TARGET"] = str(tier.target / speed)
        for better, after in tier.promote.items():
            name = f"FAIRLANE_TIERS__{tier.name.upper()}__PROMOTE__{better.upper()}"
            found[name] = str(after / speed)
    return found
