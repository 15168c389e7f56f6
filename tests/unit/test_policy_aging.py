"""Waiting makes a job count as a better tier."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.errors import InvalidInput
from fairlane.model.tier import Tier, Tiers
from fairlane.policy.aging import Starts, ages_from, level, next_promotion

MINUTE = 60_000_000
LOW = ((1, 10 * MINUTE), (0, 30 * MINUTE))

waits = st.integers(0, 10**10)
thresholds = st.lists(st.integers(1, 10**9), min_size=0, max_size=4, unique=True).map(
    lambda times: tuple((len(times) - 1 - n, at) for n, at in enumerate(sorted(times)))
)
starts = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=12).map(
    lambda each: sorted(each, key=lambda start: start[1])
)


@pytest.mark.parametrize(
    ("waited", "counts_as"),
    [
        (0, 2),
        (10 * MINUTE - 1, 2),
        (10 * MINUTE, 1),
        (30 * MINUTE - 1, 1),
        (30 * MINUTE, 0),
        (10**15, 0),
    ],
)
def test_a_job_counts_as_a_better_tier_exactly_at_its_threshold(
    waited: int, counts_as: int
) -> None:
    assert level(2, waited, LOW) == counts_as


@given(waits, waits, thresholds)
def test_waiting_longer_never_makes_a_job_count_less(
    waited: int, more: int, steps: tuple[tuple[int, int], ...]
) -> None:
    rank = len(steps)
    assert level(rank, waited + more, steps) <= level(rank, waited, steps) <= rank


@given(waits, thresholds)
def test_the_level_is_the_best_rank_whose_threshold_has_passed(
    waited: int, steps: tuple[tuple[int, int], ...]
) -> None:
    rank = len(steps)
    assert level(rank, waited, steps) == min([rank, *(to for to, at in steps if at <= waited)])


@given(waits, thresholds)
def test_the_next_promotion_comes_exactly_when_it_was_announced(
    waited: int, steps: tuple[tuple[int, int], ...]
) -> None:
    rank = len(steps)
    coming = next_promotion(waited, steps)
    if coming is None:
        assert level(rank, waited, steps) == level(rank, 10**15, steps)
    else:
        to, after = coming
        assert after > 0
        assert level(rank, waited + after, steps) == to
        assert level(rank, waited + after - 1, steps) == level(rank, waited, steps)


def test_a_threshold_that_promotes_no_further_than_an_earlier_one_is_ignored() -> None:
    tiers = Tiers([Tier("high"), Tier("medium"), Tier("low", {"high": 10, "medium": 20})])
    assert tiers.thresholds[2] == ((0, 10_000_000),)
    assert tiers.patience == (0, 0, 10_000_000)


def test_nobody_is_promoted_downwards() -> None:
    with pytest.raises(InvalidInput, match="cannot be promoted down"):
        Tiers([Tier("high", {"low": 10}), Tier("low")])


def test_patience_is_the_largest_threshold() -> None:
    tiers = Tiers([Tier("high"), Tier("medium"), Tier("low", {"medium": 600, "high": 1800})])
    assert tiers.patience[2] == 1800 * 1_000_000


@given(starts, st.integers(0, 60), st.sampled_from("abcd"))
def test_a_job_ages_from_its_place_or_the_last_start_of_another_job_of_its_user(
    history: list[tuple[str, int]], score: int, job: str
) -> None:
    kept = Starts()
    for started, at in history:
        kept = kept.after(started, at)
    others = [at for started, at in history if started != job]
    assert ages_from(score, job, kept) == max([score, *others])


def test_a_retry_keeps_the_age_it_had_when_nothing_else_of_its_user_started() -> None:
    assert ages_from(5, "a", Starts().after("a", 100).after("a", 200)) == 5
    assert ages_from(5, "a", Starts().after("a", 100).after("b", 200)) == 200
