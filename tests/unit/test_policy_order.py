"""Which of the heads of all lines goes next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.service import Shares
from fairlane.policy.order import Candidate, Choice, QueueHeads, between_services, choose
from fairlane.policy.shares import Credits, ShareKind

BROKE = Credits(0, 0, 0)
NO_CAPS = Shares(1000, 1000, 1000)

ranks = st.integers(0, 3)
times = st.integers(0, 100)


def aged(level: int, rank: int, since: int) -> Candidate:
    return Candidate(level, since, since, since, "aged", rank, ShareKind.AGED)


def fresh(rank: int, since: int) -> Candidate:
    return Candidate(rank, 0, 0, since, "fresh", rank, ShareKind.FRESH)


def kind(choice: Choice | None) -> ShareKind:
    assert choice is not None
    return choice.candidate.kind


@given(ranks, ranks, ranks, times, times)
def test_without_caps_the_better_level_goes_then_the_older(
    level: int, born: int, other: int, since: int, other_since: int
) -> None:
    old, new = aged(min(level, born), born, since), fresh(other, other_since)
    choice = choose(QueueHeads(aged=old, fresh=new), Credits(), NO_CAPS)
    first = min([(old.level, old.since, 1), (new.level, new.since, 0)])
    assert kind(choice) is (ShareKind.AGED if first[2] else ShareKind.FRESH)


@given(ranks, ranks, times, times)
def test_without_credit_aged_work_does_not_pass_better_born_work(
    born: int, better: int, since: int, other_since: int
) -> None:
    heads = QueueHeads(aged=aged(0, born, since), fresh=fresh(min(better, born), other_since))
    choice = choose(heads, BROKE, Shares())
    if better < born:
        assert kind(choice) is ShareKind.FRESH
    assert choice is not None
    assert not choice.jumped


def test_aged_work_pays_only_when_it_passes_better_born_work() -> None:
    passes = choose(QueueHeads(aged=aged(0, 2, 5), fresh=fresh(1, 9)), Credits(), Shares())
    among_equals = choose(QueueHeads(aged=aged(0, 2, 5), fresh=fresh(2, 9)), BROKE, Shares())
    assert passes is not None
    assert among_equals is not None
    assert (kind(passes), passes.jumped) == (ShareKind.AGED, True)
    assert (kind(among_equals), among_equals.jumped) == (ShareKind.AGED, False)


def test_skips_go_before_front_retries_before_the_rest() -> None:
    skip = Candidate(0, 50, 50, 50, "skip", -1, ShareKind.SKIP)
    front = Candidate(0, 40, 40, 40, "front", -1, ShareKind.FRONT)
    heads = QueueHeads(skip, front, aged(0, 2, 1), fresh(0, 2))
    assert kind(choose(heads, Credits(), Shares())) is ShareKind.SKIP
    assert kind(choose(heads._replace(skip=None), Credits(), Shares())) is ShareKind.FRONT
    assert kind(choose(heads, Credits()._replace(skip=999), Shares())) is ShareKind.FRONT


def test_between_services_skips_come_first_by_payment_then_front_retries_then_levels() -> None:
    in_order = [
        Candidate(0, 3, 3, 90, "paid first", -1, ShareKind.SKIP),
        Candidate(0, 4, 4, 10, "paid later", -1, ShareKind.SKIP),
        Candidate(0, 1, 1, 1, "front", -1, ShareKind.FRONT),
        Candidate(0, 9, 9, 5, "aged to the top", 2, ShareKind.AGED),
        Candidate(0, 1, 1, 6, "born at the top", 0, ShareKind.FRESH),
        Candidate(1, 1, 1, 1, "second tier", 1, ShareKind.FRESH),
    ]
    choices = [Choice(each, jumped=False) for each in reversed(in_order)]
    assert [each.candidate for each in sorted(choices, key=between_services)] == in_order
