"""Names of credit accounts. Only the house account may go below zero."""

from __future__ import annotations

from fairlane.errors import Conflict

MINT = "house:mint"
SKIPS = "house:skips"


def account_of(tenant: str, user: str) -> str:
    return f"user:{tenant}/{user}"


def reused(operation: str, was: int) -> Conflict:
    """For who asks for another amount under the name of an operation that was done."""
    return Conflict(f'operation "{operation}" was done with the amount {was}; choose another name')


def is_house(account: str) -> bool:
    return account.startswith("house:")
