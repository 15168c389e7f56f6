"""The statement of a user's credit account: payments, refunds, grants and withdrawals, with the
balance after each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from fairlane.ledger.credit_account_names import REFUND, SKIP, credit_operation

EntryKind = Literal["payment", "refund", "grant", "withdrawal"]

MAX_TIME = 2**63 - 1
"""Later than every entry, in microseconds since 1970."""


class StatementQuery(NamedTuple):
    """Which entries: booked at `since` or later and before `before`, newest first."""

    account: str
    since: int = 0
    before: int = MAX_TIME
    limit: int = 50


class StatementEntry(NamedTuple):
    """One booking. Bookings of one account never have the same time `at`, so it also names the
    place of the entry in the statement."""

    at: int
    kind: EntryKind
    amount: int
    balance: int
    """After this booking."""
    job: str | None
    """Of a payment or a refund."""
    operation_key: str | None
    """Of a grant or a withdrawal."""
    note: str


class CreditStatement(NamedTuple):
    """The present balance, and a page of entries, newest first."""

    balance: int
    entries: list[StatementEntry]


def credit_statement(
    account: str, balance: int, newer: int, rows: Iterable[tuple[Any, ...]]
) -> CreditStatement:
    """Builds a page from rows of (operation, amount, at, note), newest first. `newer` is the sum of
    the amounts that were booked after the page."""
    entries = []
    after = balance - newer
    for operation, amount, at, note in rows:
        kind, job, key = _origin(account, operation, amount)
        entries.append(StatementEntry(at, kind, amount, after, job, key, note or ""))
        after -= amount
    return CreditStatement(balance, entries)


def _origin(account: str, operation: str, amount: int) -> tuple[EntryKind, str | None, str | None]:
    """What an operation was, and the job or the operation key that its name holds. A user's name
    may contain the separator, so the account is cut off as a whole."""
    if operation.startswith(SKIP):
        return "payment", _job(operation, SKIP), None
    if operation.startswith(REFUND):
        return "refund", _job(operation, REFUND + SKIP), None
    key = operation.removeprefix(credit_operation(account, ""))
    return ("grant" if amount >= 0 else "withdrawal"), None, key


def _job(operation: str, prefix: str) -> str:
    return operation.removeprefix(prefix).partition(":")[0]
