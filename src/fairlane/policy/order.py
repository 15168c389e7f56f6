"""The order of service: which of the candidates at the heads of the queues goes next."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.service import Shares
from fairlane.policy.shares import Credits, ShareKind, may_jump


class Candidate(NamedTuple):
    """The head of a queue. Compared field by field: `level` (the rank it counts as), `order` (its
    place among the candidates of its kind), `since` (when it began to age), `flow` (a name, so that
    both stores break ties in the same way). `rank` is the tier it was submitted in."""

    level: int
    order: int
    score: int
    since: int
    flow: str
    rank: int
    kind: ShareKind


class QueueHeads(NamedTuple):
    """The best candidate of each class in one service, or None."""

    skip: Candidate | None = None
    front: Candidate | None = None
    aged: Candidate | None = None
    fresh: Candidate | None = None


class Choice(NamedTuple):
    """The chosen candidate, and whether it goes before other waiting jobs, which costs its class a
    credit."""

    candidate: Candidate
    jumped: bool


def choose(heads: QueueHeads, credit: Credits, shares: Shares) -> Choice | None:
    """The next job of one service."""
    skip, front, aged, fresh = heads
    waiting = aged or fresh
    if skip and (not (front or waiting) or may_jump(ShareKind.SKIP, credit, shares)):
        return Choice(skip, jumped=bool(front or waiting))
    if front and (not waiting or may_jump(ShareKind.FRONT, credit, shares)):
        return Choice(front, jumped=bool(waiting))
    if aged and (fresh is None or _goes_before(aged, fresh)):
        better_born = fresh is not None and fresh.rank < aged.rank
        if not better_born or may_jump(ShareKind.AGED, credit, shares):
            return Choice(aged, jumped=better_born)
    if fresh:
        return Choice(fresh, jumped=False)
    return Choice(aged, jumped=False) if aged else None


def between_services(choice: Choice) -> tuple[int, int, str]:
    """The sort key between the choices of all services that a worker runs."""
    candidate = choice.candidate
    if candidate.kind is ShareKind.SKIP:
        return -2, candidate.order, candidate.flow
    if candidate.kind is ShareKind.FRONT:
        return -1, candidate.order, candidate.flow
    return candidate.level, candidate.since, candidate.flow


def _goes_before(aged: Candidate, fresh: Candidate) -> bool:
    if aged.level != fresh.level:
        return aged.level < fresh.level
    return aged.since < fresh.since or aged.flow == fresh.flow
