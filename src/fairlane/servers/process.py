"""A private server process: ready when `start` returns, and ended with this process."""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

# Runs a program, as another user if one is given. The kernel sends it a signal when its parent dies
# (not on a system without prctl). A `preexec_fn` could hang in a process with threads.
LAUNCHER = """
import ctypes, os, sys
number, parent, user, *command = sys.argv[1:]
if user:
    os.setgroups([]), os.setgid(int(user)), os.setuid(int(user))
if prctl := getattr(ctypes.CDLL(None), "prctl", None):
    prctl(1, int(number), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("the parent process has ended")
os.execv(command[0], command)
"""


def ended_with_parent(
    command: Sequence[str], number: signal.Signals = signal.SIGKILL, user: str = ""
) -> list[str]:
    """The command for a process that the kernel ends when the thread that starts it ends. Its
    program is an absolute path."""
    launcher = [sys.executable, "-ISc", LAUNCHER]
    return [*launcher, str(int(number)), str(os.getpid()), user, *command]


class ServerFailed(Exception):
    """A server program was not found or did not start. The message ends with its log."""


class ServerProcess(ABC):
    """One server process on 127.0.0.1, with its own port and temporary folder.

    A context manager starts and stops it. The port stays the same through restarts. The kernel ends
    the server when the thread that started it ends, however this process ends: so start it in the
    main thread."""

    _parent_death_signal = signal.SIGKILL

    def __init__(self, *, place: Path | None = None) -> None:
        """`place`: the parent of the server's folder; None = the default for temporary folders."""
        self.port = _free_port()
        self.folder = temporary_folder("server", place)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """The server's process and its children. Empty when it is down."""
        if self._process is None or self._process.poll() is not None:
            return []
        main = self._process.pid
        try:
            children = Path(f"/proc/{main}/task/{main}/children").read_text()
        except OSError:  # no such list on this system: children end with their parent
            children = ""
        return [main, *map(int, children.split())]

    def start(self, *, within: float = 30) -> None:
        """Returns when the server answers. Raises ServerFailed after `within` seconds."""
        if self.pids:
            raise ServerFailed("the server is already running")
        self._prepare()
        self._process = self._launch(self._command())
        deadline = time.monotonic() + within
        while not self._answers():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.01)
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise self._failed(f"{self._command()[0]} did not start")

    def kill(self) -> None:
        """Sends SIGKILL to the server and its children at once. Returns when all are dead."""
        if self._process is None:
            return
        send(signal.SIGSTOP, self.pids[:1])  # so that it neither forks nor sees its children die
        pids = self.pids
        children = list(_handles(pids[1:]))
        send(signal.SIGKILL, reversed(pids))
        self._process.wait()
        self._process = None
        for child in children:
            select.select([child], [], [])
            os.close(child)

    def stop(self) -> None:
        """Stops the server and removes its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        """Sends the signal, and SIGKILL if the server does not end."""
        send(number, self.pids[:1])
        send(signal.SIGCONT, self.pids)
        if self._process:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        self.kill()

    def _launch(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts a process that writes to the log and ends with this process."""
        before, user = self._run_as()
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own servers
                [*before, *ended_with_parent(command, self._parent_death_signal, user)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C is for this process, not for its servers
            )

    def _failed(self, what: str) -> ServerFailed:
        log = (self.folder / "log").read_text(errors="replace")
        return ServerFailed(f"{what}; its log:\n{log}")

    def _run_as(self) -> tuple[tuple[str, ...], str]:
        """A command prefix and a user id under which the server runs."""
        return (), ""

    def _environment(self) -> dict[str, str]:
        """This process's environment without variables that change how a server behaves."""
        kept = {key: text for key, text in os.environ.items() if not key.startswith(("PG", "LC_"))}
        return {**kept, "LC_ALL": "C", "TZ": "UTC"}

    def _prepare(self) -> None:  # noqa: B027 - most need nothing
        """Prepares the folder before a start."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The command that starts the server."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers."""


def temporary_folder(kind: str, place: Path | None = None) -> Path:
    """A new temporary folder of this process. Also removes folders of this kind whose processes
    have ended: a process that is killed cannot remove its own."""
    place, prefix = place or Path(tempfile.gettempdir()), f"fairlane-{kind}-"
    for left in place.glob(f"{prefix}*"):
        owner, dash, _ = left.name.removeprefix(prefix).partition("-")
        if dash and owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=place))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # the process exists and belongs to another user
        pass
    return True


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Sends the signal to each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def ask(port: int, request: bytes) -> bytes:
    """The first bytes that the server on this port sends, or nothing."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(request)
            return connection.recv(1024)
    except OSError:
        return b""


def _handles(pids: Iterable[int]) -> Iterator[int]:
    """For each process that still exists, a file descriptor that becomes readable when it ends."""
    for pid in pids:
        with suppress(ProcessLookupError):
            yield os.pidfd_open(pid)


def _free_port() -> int:
    """A port below the kernel's range for clients: no client gets it while the server is down."""
    for _ in range(100):
        port = 15_000 + secrets.randbelow(15_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerFailed("tried 100 ports, none is free")
