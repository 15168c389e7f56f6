"""Names of accounts and operations of the credit ledger (double-entry bookkeeping). Only system
accounts, named `house:…`, may go below zero."""

from __future__ import annotations

from fairlane.errors import Conflict

MINT = "house:mint"
SKIPS = "house:skips"

CREDIT, SKIP, REFUND = "credit:", "skip:", "refund:"
"""How the names of operations begin."""


def account_of(tenant: str, user: str) -> str:
    return f"user:{tenant}/{user}"


def credit_operation(account: str, key: str) -> str:
    """A grant or a withdrawal."""
    return f"{CREDIT}{account}:{key}"


def skip_operation(job: str, op: str) -> str:
    return f"{SKIP}{job}:{op}"


def refund_operation(charge: str) -> str:
    return f"{REFUND}{charge}"


def reused(operation: str, was: int) -> Conflict:
    """The error for an operation name that is used again with another amount."""
    return Conflict(f'operation "{operation}" was done with the amount {was}; choose another name')


def is_house(account: str) -> bool:
    return account.startswith("house:")
