"""Who may go first, and how often: the shares of skips, front retries and aged work.

Each class earns credit with every grant of its service and pays one grant when it goes before
others that wait. So no class that jumps the line can take all of it, and none is shut out."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from fairlane.model.service import Shares

GRANT = 1000
"""What one grant costs, in thousandths."""

MOST = 4 * GRANT
"""The most credit a class can save up."""


class Kind(IntEnum):
    """As what a job is handed out. FRESH has no cap: it is what the others leave."""

    SKIP = 0
    FRONT = 1
    AGED = 2
    FRESH = 3


class Credits(NamedTuple):
    """A service's credit per class. Full at the start: who has just paid goes first."""

    skip: int = MOST
    front: int = MOST
    aged: int = MOST


FULL = Credits()


def may_jump(kind: Kind, credit: Credits, shares: Shares) -> bool:
    """Whether this class may go before others that wait."""
    if kind is Kind.FRESH or shares[kind] >= GRANT:
        return True
    return credit[kind] >= GRANT


def granted(credit: Credits, kind: Kind, shares: Shares, *, jumped: bool) -> Credits:
    """The credits after a grant. Skips earn with every grant, front retries with those that skips
    leave, aged work with those that both leave."""
    if kind is Kind.FRESH and credit is FULL:
        return credit
    paid = GRANT if jumped else 0
    skip = min(MOST, credit.skip + shares.skip)
    if kind is Kind.SKIP:
        return credit._replace(skip=max(0, skip - paid))
    front = min(MOST, credit.front + shares.front)
    if kind is Kind.FRONT:
        return Credits(skip, max(0, front - paid), credit.aged)
    aged = min(MOST, credit.aged + shares.aged)
    if kind is Kind.AGED:
        aged = max(0, aged - paid)
    if skip == front == aged == MOST:
        return FULL
    return Credits(skip, front, aged)
