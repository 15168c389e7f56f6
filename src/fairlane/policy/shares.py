"""Shares of skips and retries: how often paid skips, front retries and aged jobs may go first. Each
class has a token bucket that fills with every grant."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from fairlane.model.service import Shares

GRANT_THOUSANDTHS = 1000
"""The price of one grant, in thousandths."""

MAX_CREDIT_THOUSANDTHS = 4 * GRANT_THOUSANDTHS
"""The most credit that a class can save."""


class ShareKind(IntEnum):
    """The class under which a job is handed out. FRESH has no cap: it gets what the other classes
    leave."""

    SKIP = 0
    FRONT = 1
    AGED = 2
    FRESH = 3


class Credits(NamedTuple):
    """The credit of each class in a service. It starts full, so a skip paid right after a restart
    goes first."""

    skip: int = MAX_CREDIT_THOUSANDTHS
    front: int = MAX_CREDIT_THOUSANDTHS
    aged: int = MAX_CREDIT_THOUSANDTHS


FULL = Credits()


def may_jump(kind: ShareKind, credit: Credits, shares: Shares) -> bool:
    """Whether this class may go before other waiting jobs."""
    if kind is ShareKind.FRESH or shares[kind] >= GRANT_THOUSANDTHS:
        return True
    return credit[kind] >= GRANT_THOUSANDTHS


def granted(credit: Credits, kind: ShareKind, shares: Shares, *, jumped: bool) -> Credits:
    """The credits after a grant. Skips earn with every grant, front retries with grants that are
    not skips, aged jobs with grants that are neither."""
    if kind is ShareKind.FRESH and credit is FULL:
        return credit
    paid = GRANT_THOUSANDTHS if jumped else 0
    skip = min(MAX_CREDIT_THOUSANDTHS, credit.skip + shares.skip)
    if kind is ShareKind.SKIP:
        return credit._replace(skip=max(0, skip - paid))
    front = min(MAX_CREDIT_THOUSANDTHS, credit.front + shares.front)
    if kind is ShareKind.FRONT:
        return Credits(skip, max(0, front - paid), credit.aged)
    aged = min(MAX_CREDIT_THOUSANDTHS, credit.aged + shares.aged)
    if kind is ShareKind.AGED:
        aged = max(0, aged - paid)
    if skip == front == aged == MAX_CREDIT_THOUSANDTHS:
        return FULL
    return Credits(skip, front, aged)
