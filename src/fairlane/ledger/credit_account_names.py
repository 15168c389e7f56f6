"""Account names of the credit ledger (double-entry bookkeeping). Only system accounts, named
`house:…`, may go below zero."""

from __future__ import annotations

from fairlane.errors import Conflict

MINT = "house:mint"
SKIPS = "house:skips"


def account_of(tenant: str, user: str) -> str:
    return f"user:{tenant}/{user}"


def reused(operation: str, was: int) -> Conflict:
    """The error for an operation name that is used again with another amount."""
    return Conflict(f'operation "{operation}" was done with the amount {was}; choose another name')


def is_house(account: str) -> bool:
    return account.startswith("house:")
