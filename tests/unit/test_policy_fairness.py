"""Fair share between users, by cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.policy.fairness import charge, correct, lift

amounts = st.integers(0, 10**9)
jobs = st.lists(st.tuples(amounts, amounts), max_size=30)


@given(amounts, amounts)
def test_who_begins_to_wait_is_lifted_to_virtual_time_and_never_lowered(
    counter: int, virtual: int
) -> None:
    lifted, moved = lift(counter, virtual)
    assert lifted >= counter
    assert lifted >= virtual
    assert virtual <= moved <= virtual + 1


@given(amounts, st.integers(1, 20))
def test_those_who_come_together_are_served_in_the_order_of_their_coming(
    virtual: int, users: int
) -> None:
    counters = []
    for _ in range(users):
        counter, virtual = lift(0, virtual)
        counters.append(counter)
    assert counters == sorted(set(counters))


@given(amounts, amounts, amounts)
def test_what_is_owed_is_used_up_before_anything_is_charged(
    counter: int, refund: int, cost: int
) -> None:
    charged, left = charge(counter, refund, cost)
    assert charged >= counter
    assert left >= 0
    assert (charged - counter) + (refund - left) == cost
    assert charged == counter or left == 0


@given(amounts, amounts, amounts, amounts)
def test_a_correction_never_takes_a_counter_back(
    counter: int, refund: int, estimated: int, actual: int
) -> None:
    corrected, owed = correct(counter, refund, estimated, actual)
    assert corrected >= counter
    assert owed >= refund
    assert (corrected - owed) - (counter - refund) == actual - estimated


@given(jobs)
def test_counter_less_refund_is_exactly_the_service_received(work: list[tuple[int, int]]) -> None:
    counter = refund = 0
    for estimated, actual in work:
        before = counter
        counter, refund = charge(counter, refund, estimated)
        counter, refund = correct(counter, refund, estimated, actual)
        assert counter >= before
        assert refund >= 0
    assert counter - refund == sum(actual for _, actual in work)


@given(jobs)
def test_a_refund_is_never_more_than_the_largest_estimate(work: list[tuple[int, int]]) -> None:
    counter = refund = 0
    for estimated, actual in work:
        counter, refund = charge(counter, refund, estimated)
        counter, refund = correct(counter, refund, estimated, actual)
        assert refund <= max(each for each, _ in work)
