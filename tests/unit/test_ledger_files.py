"""The files of an embedded ledger: whose they are, and what is said when they are no ledger."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlane.cli import app
from fairlane.compose import embedded
from fairlane.config.load import without_settings
from fairlane.errors import LedgerInUse, LedgerUnusable
from fairlane.ledger.sqlite import SqliteLedger
from fairlane.ledger.sqlite.migrate import SCHEMA
from fairlane.ledger.statement import MAX_TIME
from fairlane.model.job import NewJob
from tests.ledger_items import AFTERWARDS, OLD_ACCOUNTS, OLD_ENTRIES
from tests.world import catalog

FILE = "ledger.db"


@pytest.fixture
def wide_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


@pytest.mark.usefixtures("wide_umask")
async def test_all_files_of_a_ledger_are_for_their_owner_only(tmp_path: Path) -> None:
    """S18: also in a folder that was there before."""
    async with await embedded(catalog(), tmp_path / "ledger.db", sweeping=False) as engine:
        await engine.submit(NewJob("work"))
        names = {"ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db.lock"}
        assert modes(tmp_path) == dict.fromkeys(names, 0o600)


@pytest.mark.usefixtures("wide_umask")
async def test_files_that_others_could_read_are_closed_to_them_at_the_next_start(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    async with await embedded(catalog(), path, sweeping=False):
        pass
    for name in modes(tmp_path):
        (tmp_path / name).chmod(0o644)
    async with await embedded(catalog(), path, sweeping=False):
        assert set(modes(tmp_path).values()) == {0o600}


@pytest.mark.parametrize("linked", ["file", "folder"])
async def test_a_ledger_under_another_name_is_the_same_ledger(tmp_path: Path, linked: str) -> None:
    """I5: a second owner would hand every job out a second time."""
    folder = tmp_path / "data"
    folder.mkdir()
    if linked == "file":
        other = tmp_path / "other.db"
        other.symlink_to(folder / "ledger.db")
    else:
        (tmp_path / "other").symlink_to(folder)
        other = tmp_path / "other" / "ledger.db"
    first = await SqliteLedger.open(folder / "ledger.db")
    try:
        with pytest.raises(LedgerInUse):
            await SqliteLedger.open(other)
    finally:
        await first.close()
    await (await SqliteLedger.open(other)).close()


async def test_a_link_to_a_ledger_that_is_not_there_yet_makes_it_there(tmp_path: Path) -> None:
    link, real = tmp_path / "link.db", tmp_path / "elsewhere" / "ledger.db"
    link.symlink_to(real)
    ledger = await SqliteLedger.open(link)
    try:
        with pytest.raises(LedgerInUse):
            await SqliteLedger.open(real)
    finally:
        await ledger.close()


# --- what is no ledger ---------------------------------------------------------------------------
def text(path: Path) -> None:
    path.write_text("these are notes, and not a database at all\n" * 100)


def of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript("CREATE TABLE bookmarks (url TEXT); PRAGMA user_version = 75")
    connection.close()


def of_another_program_without_a_version(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE jobs (name TEXT)")
    connection.close()


def damaged(path: Path) -> None:
    _with_jobs(path)
    content = bytearray(path.read_bytes())
    for start in range(4096, len(content), 4096):
        content[start : start + 200] = b"\xff" * 200
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    _with_jobs(path)
    path.write_bytes(path.read_bytes()[:6000])


def a_folder(path: Path) -> None:
    path.mkdir()


def _with_jobs(path: Path) -> None:
    async def submit() -> None:
        async with await embedded(catalog(), path, sweeping=False) as engine:
            for _ in range(50):
                await engine.submit(NewJob("work", input={"text": "x" * 1000}))

    asyncio.run(submit())


Makes = Callable[[Path], None]
NO_LEDGERS: list[tuple[Makes, str]] = [
    (text, "is not a ledger"),
    (of_another_program, "of another program"),
    (of_another_program_without_a_version, "of another program"),
    (damaged, "is damaged"),
    (cut, "is damaged"),
    (a_folder, "cannot write"),
]


@pytest.mark.parametrize(("makes", "why"), NO_LEDGERS)
@pytest.mark.parametrize("command", [("serve",), ("keys", "list"), ("migrate",)])
def test_a_file_that_is_no_ledger_is_named_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    makes: Makes,
    why: str,
    command: tuple[str, ...],
) -> None:
    """And stays as it was."""
    monkeypatch.chdir(tmp_path)
    for name in set(os.environ) - set(without_settings(os.environ)):
        monkeypatch.delenv(name)
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / FILE
    makes(path)
    before = path.read_bytes() if path.is_file() else None
    more = ("--port", "0") if command == ("serve",) else ()
    done = CliRunner().invoke(app, [*command, *more], env={"FAIRLANE_SERVER__DATA": "data"})
    if done.exit_code == 0:  # it needed nothing of what is damaged
        assert makes in (damaged, cut)
        assert command != ("serve",)
        return
    assert (done.exit_code, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("fairlane: ")
    assert str(path) in line
    assert why in line
    if path.is_file() and makes not in (damaged, cut):
        assert path.read_bytes() == before


async def test_a_disk_that_is_full_is_named_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"

    class Full(sqlite3.Connection):
        def executescript(self, script: str) -> sqlite3.Cursor:
            self.execute("PRAGMA max_page_count = 10")
            return super().executescript(script)

    with pytest.raises(LedgerUnusable, match="is full; make room"):
        await SqliteLedger.open(path, Full)
    await (await SqliteLedger.open(path)).close()


async def test_a_disk_without_room_for_an_input_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I32: also when a small change still finds room in the log."""
    ledger = await SqliteLedger.open(tmp_path / "ledger.db")
    try:
        monkeypatch.setattr("fairlane.ledger.sqlite.connect.MIN_FREE_BYTES", 1 << 62)
        with pytest.raises(LedgerUnusable, match="is full; make room"):
            await ledger.vitals.demand_writable()
    finally:
        await ledger.close()


# --- migrations ----------------------------------------------------------------------------------
async def test_entries_of_one_instant_get_an_order_when_a_ledger_is_migrated(
    tmp_path: Path,
) -> None:
    """I14: amounts and balances stay; entries are append-only again."""
    path = tmp_path / FILE
    with closing(sqlite3.connect(path)) as old:
        for step in ("0001_first.sql", "0002_keys.sql", "0003_gateway.sql"):
            old.executescript((SCHEMA / step).read_text())
        old.execute("PRAGMA user_version = 3")
        old.executemany("INSERT INTO accounts VALUES (?, ?)", OLD_ACCOUNTS)
        old.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, NULL)", OLD_ENTRIES)
        old.commit()
    ledger = await SqliteLedger.open(path)
    found = await ledger.statement("default", "ada", 0, MAX_TIME, 50)
    counts = await ledger.check()
    await ledger.close()
    assert [(each.operation_key, each.at, each.balance) for each in found.entries] == AFTERWARDS
    assert not any(counts)
    with closing(sqlite3.connect(path)) as migrated:
        for wish in ("UPDATE entries SET at = 1", "DELETE FROM entries"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                migrated.execute(wish)
