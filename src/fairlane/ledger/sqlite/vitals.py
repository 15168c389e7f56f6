"""How the file is."""

from __future__ import annotations

import sqlite3

from fairlane.ledger.sqlite.reading import brief
from fairlane.ledger.sqlite.reads import CHECKS
from fairlane.ledger.vitals import Signs


def signs(connection: sqlite3.Connection) -> Signs:
    return Signs(connection.execute("SELECT min(seq) FROM outbox").fetchone()[0])


def imbalance(connection: sqlite3.Connection) -> int:
    with brief(connection):
        return sum(
            connection.execute(CHECKS[name]).fetchone()[0]
            for name in ("unbalanced_operations", "wrong_balances")
        )
