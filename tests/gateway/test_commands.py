"""Flags that matter only beside real servers."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from fairlane.config.load import without_settings
from fairlane.servers import Databases

NOBODY = "redis://127.0.0.1:1"
"""Not reached: the database is looked at first."""


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "--port", "0"),
        ("serve", "--port", "0", "--redis-url", NOBODY),
        ("dispatch", "--redis-url", NOBODY),
        ("migrate",),
    ],
    ids=" ".join,
)
async def test_a_database_that_forgets_is_refused_unless_that_is_fine(
    tmp_path: Path, command: tuple[str, ...], postgres_server: Databases
) -> None:
    """Beyond that, only `migrate` has what it needs here."""
    url = await postgres_server.new_database()
    code, said = await typed(tmp_path, url, *command)
    assert (code, "PostgreSQL runs with fsync = off" in said) == (1, True), said
    code, said = await typed(tmp_path, url, *command, "--unsafe")
    if command == ("migrate",):
        assert (code, said) == (0, "the ledger is up to date\n")
    else:
        assert (code, "no Fairlane schema" in said) == (1, True), said


async def test_the_database_to_migrate_can_be_named(
    tmp_path: Path, postgres_server: Databases
) -> None:
    url = await postgres_server.new_database()
    flags = ("--database-url", url, "--unsafe")
    code, said = await typed(tmp_path, "", "migrate", *flags)
    assert (code, said) == (0, "the ledger is up to date\n")
    code, said = await typed(tmp_path, url, "keys", "list")
    assert "no Fairlane schema" not in said


async def typed(folder: Path, database: str, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fairlane",
        *arguments,
        cwd=folder,
        env={
            **without_settings(os.environ),
            "DATABASE_URL": database,
            "FAIRLANE_SERVER__WAIT_FOR_STORES": "0",
        },
        stdout=PIPE,
        stderr=STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()
