"""Every command and every exit code is documented, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from fairlane.cli import app, configure, remote
from tests.repo.tables import DOCS, table

PAGE = DOCS / "reference" / "commands.md"


def commands(group: Any, before: str) -> Iterator[str]:
    for name, each in group.commands.items():
        inner = getattr(each, "commands", None)
        if inner is None:
            yield f"{before} {name}"
        else:
            yield from commands(each, f"{before} {name}")


def test_every_command_is_documented() -> None:
    rows = table(PAGE, "Commands")
    real = set(commands(typer.main.get_command(app), "fairlane"))
    assert {row["command"] for row in rows} == real
    assert all(row["what it does"] for row in rows)


def test_every_exit_code_is_documented() -> None:
    real = {0, remote.REFUSED, remote.USAGE, remote.NOT_COMPLETED, configure.BAD_SETTINGS}
    real |= {remote.UNAVAILABLE, remote.NO_PERMISSION}
    assert {int(row["code"]) for row in table(PAGE, "Exit codes")} == real
