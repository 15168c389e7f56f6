"""Commands as they are typed, as far as they end by themselves."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlane.cli import app
from fairlane.cli.serve import welcome
from fairlane.compose import embedded
from fairlane.config.load import load, without_settings
from fairlane.ledger.sqlite.connect import Ownership
from fairlane.presets import tasks

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """In an empty folder, with these variables and none of ours else."""
    monkeypatch.chdir(tmp_path)
    for name in set(os.environ) - set(without_settings(os.environ)):
        monkeypatch.delenv(name)

    def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, arguments, env=variables, catch_exceptions=False)
        return done.exit_code, done.stdout, done.stderr

    return run


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


# --- the folder of a ledger ----------------------------------------------------------------------
@pytest.mark.parametrize("command", [("migrate",), ("keys", "create")], ids=" ".join)
def test_a_folder_that_a_command_makes_is_for_its_owner_only(
    tmp_path: Path, typed: Typed, command: tuple[str, ...]
) -> None:
    assert typed(*command)[0] == 0
    assert rights(tmp_path / ".fairlane") == 0o700


async def test_a_folder_that_a_queue_makes_is_for_its_owner_only(tmp_path: Path) -> None:
    async with await embedded(tasks(), tmp_path / "made" / "ledger.db"):
        assert rights(tmp_path / "made") == 0o700


def test_a_folder_that_is_there_keeps_its_rights(tmp_path: Path, typed: Typed) -> None:
    (tmp_path / ".fairlane").mkdir()
    (tmp_path / ".fairlane").chmod(0o750)
    assert typed("migrate")[0] == 0
    assert rights(tmp_path / ".fairlane") == 0o750


# --- upgrades -----------------------------------------------------------------------------------
@pytest.mark.parametrize("command", [("migrate",), ("keys", "list")], ids=" ".join)
def test_a_ledger_that_an_older_process_uses_is_not_said_to_be_up_to_date(
    tmp_path: Path, typed: Typed, command: tuple[str, ...]
) -> None:
    assert typed("migrate") == (0, "the ledger is up to date\n", "")
    path = tmp_path / ".fairlane" / "ledger.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")
    owner = Ownership(path)
    code, _, wrong = typed(*command)
    owner.release()
    assert (code, wrong.count("\n")) == (1, 1)
    assert "the ledger is at schema 1, this Fairlane needs" in wrong
    assert "stop that one, then run: fairlane migrate" in wrong


def test_the_folder_of_a_ledger_to_migrate_can_be_named(tmp_path: Path, typed: Typed) -> None:
    assert typed("migrate", "--data", "elsewhere")[0] == 0
    assert (tmp_path / "elsewhere" / "ledger.db").exists()


# --- mistakes ------------------------------------------------------------------------------------
def test_settings_that_cannot_be_written_are_said_so(typed: Typed) -> None:
    code, _, wrong = typed("init", "x/y.toml")
    assert (code, wrong) == (
        1,
        "cannot write x/y.toml: No such file or directory; name another file\n",
    )


@pytest.mark.parametrize("days", ["1e30", "inf", "nan", "-1", "0", "3651"])
def test_a_key_that_would_never_or_always_hold_is_not_made(typed: Typed, days: str) -> None:
    code, said, wrong = typed("keys", "create", "--days", days)
    assert (code, said) == (2, "")
    assert "--days must be above 0 and at most 3650" in wrong
    assert "valid" not in typed("keys", "list")[1]


def test_a_key_may_hold_for_part_of_a_day(typed: Typed) -> None:
    assert typed("keys", "create", "--days", "0.5")[0] == 0
    assert "valid" in typed("keys", "list")[1]


@pytest.mark.parametrize("name", ["PROMOTE_LOW_TO_MEDIUM_AFTER", "PROMOTE_MEDIUM_TO_HIGH_AFTER"])
def test_a_promotion_between_tiers_that_are_not_there_names_its_variable(
    typed: Typed, name: str
) -> None:
    code, _, wrong = typed("check", "--preset", "generation", **{name: "60"})
    assert (code, wrong.count("\n")) == (78, 1)
    assert wrong.startswith(f'{name}: tier "')
    assert "is not configured" in wrong


def test_a_promotion_holds_where_there_is_no_third_tier(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text('[tiers]\norder = ["medium", "low"]\n')
    tiers = load(path, environment={"PROMOTE_LOW_TO_MEDIUM_AFTER": "60"}).catalog.tiers
    assert tiers["low"].promote == {"medium": 60}


# --- the welcome ---------------------------------------------------------------------------------
def test_with_keys_the_welcome_says_that_the_docs_want_one_too() -> None:
    (without,) = [line for line in welcome(load(), 8000, keys=False) if "/docs" in line]
    (with_one,) = [line for line in welcome(load(), 8000, keys=True) if "/docs" in line]
    assert without == "  docs  http://127.0.0.1:8000/docs"
    assert with_one == f"{without} (sign in at the dashboard, or send a key)"
