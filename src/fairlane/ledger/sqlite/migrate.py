"""Schema migrations are applied to the SQLite file, each in a transaction of its own."""

from __future__ import annotations

import sqlite3
from importlib import resources
from importlib.resources.abc import Traversable

from fairlane.errors import LedgerTooNew, SetupError

SCHEMA = resources.files("fairlane.ledger.migrations") / "sqlite"


def demand_schema(connection: sqlite3.Connection) -> None:
    """Require this version's schema in a file that another process owns and has migrated."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    needed = known_schema()
    if version != needed:
        raise SetupError(
            f"the ledger is at schema {version}, this Fairlane needs {needed}, and another process "
            "uses it: stop that one, then run: fairlane migrate"
        )


def known_schema() -> int:
    """The number of the newest migration of this version."""
    return len(_steps())


def _steps() -> list[Traversable]:
    return sorted(
        (step for step in SCHEMA.iterdir() if step.name.endswith(".sql")),
        key=lambda step: step.name,
    )


def migrate(connection: sqlite3.Connection) -> None:
    """Apply every migration this file has not seen, each in a transaction of its own."""
    steps = _steps()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise LedgerTooNew(
            f"the ledger is at schema {version}, this Fairlane knows {len(steps)}; upgrade it"
        )
    for number, step in enumerate(steps, start=1):
        if number > version:
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{step.read_text()}\nPRAGMA user_version = {number};\nCOMMIT;"
            )
