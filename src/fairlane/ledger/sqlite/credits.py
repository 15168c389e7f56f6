"""Credits: append-only, double-entry bookkeeping. The entries of an operation sum to zero."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from fairlane.errors import InsufficientCredits
from fairlane.ledger.credit_account_names import SKIPS, is_house, refund_operation
from fairlane.ledger.sqlite.read_connection import brief
from fairlane.ledger.sqlite.writer import SqliteTransaction
from fairlane.ledger.statement import CreditStatement, StatementQuery, credit_statement
from fairlane.model.job import Band


def balance(tx: SqliteTransaction | sqlite3.Connection, account: str) -> int:
    row = tx.execute("SELECT balance FROM accounts WHERE name = ?", (account,)).fetchone()
    return 0 if row is None else int(row[0])


def is_done(tx: SqliteTransaction, operation: str) -> bool:
    found = tx.execute("SELECT 1 FROM entries WHERE operation = ? LIMIT 1", (operation,))
    return found.fetchone() is not None


def booked(tx: SqliteTransaction, operation: str, account: str) -> int | None:
    """The amount this operation booked to the account; None if it was not done."""
    found = tx.execute(
        "SELECT amount FROM entries WHERE operation = ? AND account = ?", (operation, account)
    ).fetchone()
    return None if found is None else int(found[0])


def transfer(
    tx: SqliteTransaction,
    operation: str,
    source: str,
    target: str,
    amount: int,
    now: int,
    note: str,
) -> InsufficientCredits | None:
    """Transfer credits, idempotently: once per operation name. The entries of a user's account have
    rising times, so they are in the order of booking."""
    if is_done(tx, operation):
        return None
    available = balance(tx, source)
    if available < amount and not is_house(source):
        return InsufficientCredits(amount, available)
    at = max(now, _last_booking(tx, target if is_house(source) else source) + 1)
    for account, change in ((source, -amount), (target, amount)):
        tx.execute("INSERT OR IGNORE INTO accounts VALUES (?, 0)", (account,))
        tx.execute("UPDATE accounts SET balance = balance + ? WHERE name = ?", (change, account))
        tx.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?)", (operation, account, change, at, note)
        )
    return None


def _last_booking(tx: SqliteTransaction, account: str) -> int:
    (last,) = tx.execute("SELECT max(at) FROM entries WHERE account = ?", (account,)).fetchone()
    return last or 0


PAGE = """
SELECT operation, amount, at, note FROM entries WHERE account = ? AND at >= ? AND at < ?
ORDER BY at DESC LIMIT ?
"""
NEWER = "SELECT coalesce(sum(amount), 0) FROM entries WHERE account = ? AND at >= ?"


def statement(connection: sqlite3.Connection, query: StatementQuery) -> CreditStatement:
    """Balance and entries are read in one snapshot, so they agree."""
    account, since, before, limit = query
    connection.execute("BEGIN")
    try:
        with brief(connection):
            now = balance(connection, account)
            rows = connection.execute(PAGE, (account, since, before, limit)).fetchall()
            (newer,) = connection.execute(NEWER, (account, before)).fetchone()
    finally:
        connection.execute("COMMIT")
    return credit_statement(account, now, newer, rows)


SKIP_COSTS = """
SELECT jobs.id, -entries.amount FROM jobs
JOIN entries ON entries.operation = jobs.charge AND entries.amount < 0
WHERE jobs.id IN (SELECT value FROM json_each(?))
"""


def skip_costs(connection: sqlite3.Connection, jobs: Sequence[str]) -> dict[str, int]:
    """What was paid for the skips of these jobs. A job without a skip is left out."""
    return dict(connection.execute(SKIP_COSTS, (json.dumps(jobs),)).fetchall())


def refund(tx: SqliteTransaction, job: str, now: int) -> None:
    """Refund a skip that had no effect in full, once. The job loses its place at the front."""
    row = tx.execute("SELECT charge FROM jobs WHERE id = ?", (job,)).fetchone()
    if row is None or row[0] is None:
        return
    charge = row[0]
    paid = tx.execute(
        "SELECT account, -amount FROM entries WHERE operation = ? AND amount < 0", (charge,)
    ).fetchone()
    if paid is not None:
        account, amount = paid
        transfer(
            tx, refund_operation(charge), SKIPS, account, amount, now, f"skip of {job} refunded"
        )
    tx.execute(
        "UPDATE jobs SET charge = NULL, band = ?, paid_at = 0 WHERE id = ?", (Band.TIER, job)
    )
