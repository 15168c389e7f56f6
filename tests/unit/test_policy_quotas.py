"""Who gets into the line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.tier import Tier
from fairlane.policy.queue_limits import room
from fairlane.policy.quotas import HOUR_MICROSECONDS, Quota, Usage, admit, admit_duration

few = st.integers(0, 20)
quotas = st.builds(Quota, few, few, few)
usages = st.builds(Usage, few, few, st.integers(0, 10**9), few)
NOW = 5 * HOUR_MICROSECONDS


@given(st.integers(1, 10**8), st.integers(2, 9), st.floats(0.01, 1))
def test_the_best_tier_has_all_places_and_the_lowest_its_share(
    most: int, tiers: int, share: float
) -> None:
    places = [room(most, rank, tiers, share) for rank in range(tiers)]
    assert places == sorted(places, reverse=True)
    assert places[0] == most
    assert most * share - 1e-6 <= places[-1] <= max(1, most * share + 1)
    assert room(0, tiers - 1, tiers, share) == 0


@given(st.integers(1, 10**8), st.integers(1, 9))
def test_the_default_share_is_half_of_the_places(most: int, tiers: int) -> None:
    for rank in range(tiers):
        assert room(most, rank, tiers, 0.5) == most - most * rank // (2 * max(1, tiers - 1))


def test_a_share_of_one_lets_every_tier_fill_the_queue() -> None:
    assert {room(100, rank, 5, 1) for rank in range(5)} == {100}


def test_the_hour_is_checked_before_pending_jobs_and_those_before_the_whole_queue() -> None:
    full = Usage(pending=1, last_hour=1, oldest_at=NOW, waiting=1)
    refusals = [admit(Quota(*limits), full) for limits in ((1, 1, 1), (1, 0, 1), (0, 0, 1))]
    assert [each and (each.code, each.setting) for each in refusals] == [
        ("too_many_this_hour", "tiers.per_hour"),
        ("too_many_pending", "tiers.pending"),
        ("queue_full", "limits.waiting"),
    ]


def test_more_jobs_than_an_hour_allows_never_fit_so_no_time_is_given() -> None:
    refused = admit(Quota(per_hour=5), Usage(last_hour=2, oldest_at=NOW), jobs=6)
    assert refused is not None
    assert refused.frees_at is None


@given(quotas, usages, st.integers(1, 10))
def test_jobs_come_in_exactly_while_every_limit_has_room_for_all_of_them(
    quota: Quota, usage: Usage, jobs: int
) -> None:
    after = usage.plus(jobs, NOW)
    fits = (
        (not quota.pending or after.pending <= quota.pending)
        and (not quota.per_hour or after.last_hour <= quota.per_hour)
        and (not quota.waiting or after.waiting <= quota.waiting)
    )
    assert (admit(quota, usage, jobs) is None) == fits


@given(quotas, usages, st.integers(1, 10))
def test_a_refusal_names_a_limit_that_holds_and_what_is_left_of_it(
    quota: Quota, usage: Usage, jobs: int
) -> None:
    refused = admit(quota, usage, jobs)
    if refused is not None:
        limit, used = {
            "queue_full": (quota.waiting, usage.waiting),
            "too_many_pending": (quota.pending, usage.pending),
            "too_many_this_hour": (quota.per_hour, usage.last_hour),
        }[refused.code]
        assert refused.limit == limit > 0
        assert refused.left == max(0, limit - used) < jobs
        assert str(limit) in str(refused)


def test_the_hourly_limit_says_when_the_oldest_submit_falls_out_of_it() -> None:
    refused = admit(Quota(per_hour=2), Usage(last_hour=2, oldest_at=NOW))
    assert refused is not None
    assert refused.frees_at == NOW + HOUR_MICROSECONDS


@given(quotas, st.integers(1, 40))
def test_one_by_one_no_limit_is_ever_exceeded(quota: Quota, tries: int) -> None:
    usage = Usage()
    for n in range(tries):
        if admit(quota, usage) is None:
            usage = usage.plus(1, NOW + n)
    for limit, used in (
        (quota.pending, usage.pending),
        (quota.per_hour, usage.last_hour),
        (quota.waiting, usage.waiting),
    ):
        assert not limit or used <= limit
    tightest = min([each for each in quota if each], default=tries)
    assert usage.pending == min(tries, tightest)
    assert usage.oldest_at == (NOW if usage.pending else 0)


def test_a_quota_without_user_limits_needs_no_counting_of_users() -> None:
    assert not Quota(waiting=100).counts_user
    assert Quota(pending=1).counts_user
    assert Quota(per_hour=1).counts_user


@given(st.floats(0, 1000), st.floats(0, 1000))
def test_a_duration_is_refused_exactly_when_it_is_longer_than_the_tier_allows(
    duration: float, longest: float
) -> None:
    refused = admit_duration(Tier("free", max_duration=longest), duration)
    assert (refused is not None) == (longest > 0 and duration > longest)
