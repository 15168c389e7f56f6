"""A file system of memory that can be full: its size is changed, so no space is really used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from fairlane.servers import Postgres

ROOMY_BYTES = 4 << 30
TRIES = 50
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
INSIDE = "FAIRLANE_CHAOS_NAMESPACE"


class SmallDisk:
    """A context manager. It needs the right to mount: root, or a user namespace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> SmallDisk:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._mount(f"size={ROOMY_BYTES}")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", self.folder], check=False)

    def fill(self) -> None:
        """From now on the file system has no free page."""
        for _ in range(TRIES):
            space = os.statvfs(self.folder)
            used = (space.f_blocks - space.f_bfree) * space.f_frsize
            if self._mount(f"remount,size={used}", check=False) == 0:
                return  # else something was written in between
        raise RuntimeError(f"{self.folder} grows too fast to be filled")

    def make_room(self) -> None:
        self._mount(f"remount,size={ROOMY_BYTES}")

    def _mount(self, options: str, *, check: bool = True) -> int:
        command = ["mount", "-t", "tmpfs", "-o", f"{options},mode=0700", "tmpfs", str(self.folder)]
        return subprocess.run(command, check=check, capture_output=not check).returncode


async def database_on(disk: SmallDisk, server: Postgres) -> str:
    """The URL of a new database whose tables are on this disk. The write-ahead log is not: without
    room for it PostgreSQL ends."""
    folder = disk.folder / "tablespace"
    folder.mkdir(mode=0o700)
    owner = (server.folder / "data").stat()
    for each in (disk.folder, folder):
        os.chown(each, owner.st_uid, owner.st_gid)
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        await connection.execute("CREATE DATABASE small TEMPLATE template0 TABLESPACE small")
    finally:
        await connection.close()
    return urlsplit(server.url)._replace(path="/small").geturl()


async def damage(database: str) -> str:
    """What amcheck finds: it reads every row of every table, and finds it in every index. Empty if
    nothing is wrong."""
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA public")
        await connection.fetch(INDEXES)
        damaged = await connection.fetch(TABLES)
    except asyncpg.DataError as error:  # an index or a row is not as it should be
        return str(error)
    finally:
        await connection.close()
    return "; ".join(f"{row[0]} block {row[1]}: {row[2]}" for row in damaged[:3])


INDEXES = """
SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_am ON pg_am.oid = c.relam
WHERE n.nspname = 'fairlane' AND pg_am.amname = 'btree' AND c.relkind = 'i' AND i.indisvalid
"""
TABLES = """
SELECT c.relname, v.blkno, v.msg FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL verify_heapam(c.oid) v WHERE n.nspname = 'fairlane' AND c.relkind = 'r'
"""


def can_mount() -> bool:
    """Whether this process may mount a file system."""
    if not shutil.which("unshare") or os.geteuid() != 0:
        return False
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(tried, check=False, capture_output=True).returncode == 0


def enter_namespace(module: str, arguments: list[str]) -> None:
    """Without the right to mount, starts this program again in a user namespace that has it, if
    there can be one. Otherwise returns."""
    if can_mount() or os.environ.get(INSIDE) or not shutil.which("unshare"):
        return
    if subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode == 0:
        os.environ[INSIDE] = "1"
        command = [*NAMESPACE, sys.executable, "-m", module, *arguments]
        os.execvp(command[0], command)  # noqa: S606
