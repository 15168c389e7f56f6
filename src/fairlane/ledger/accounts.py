"""The names of accounts. Nobody but the house goes below zero."""

from __future__ import annotations

MINT = "house:mint"
SKIPS = "house:skips"


def account_of(tenant: str, user: str) -> str:
    return f"user:{tenant}/{user}"


def is_house(account: str) -> bool:
    return account.startswith("house:")
