"""How long things take, when they will start, and what it costs to go first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.errors import InvalidInput
from fairlane.model.credits import CreditSettings
from fairlane.model.service import Service
from fairlane.policy.estimate import FIRST_COST_MICROSECONDS, Average
from fairlane.policy.eta_calibration import MAX_RATIOS, MIN_RATIOS, Calibration, Eta, rounded
from fairlane.policy.skip import price

amounts = st.integers(0, 10**10)


# --- averages ------------------------------------------------------------------------------------
def test_the_first_guesses_are_one_second_and_three_and_a_half() -> None:
    assert (FIRST_COST_MICROSECONDS, Service("s").model_load) == (1_000_000, 3.5)
    assert Average(FIRST_COST_MICROSECONDS).get("s", "m") == FIRST_COST_MICROSECONDS


def test_a_model_nobody_has_seen_takes_as_long_as_its_service() -> None:
    average = Average(1)
    average.learn(500, "s", "m")
    assert (average.get("s", "m"), average.get("s", "other"), average.get("t")) == (500, 500, 1)


def test_the_newest_value_counts_a_fifth() -> None:
    average = Average(1)
    average.learn(1000, "s")
    average.learn(2000, "s")
    assert average.get("s") == 1200


@given(st.lists(amounts, min_size=1, max_size=50))
def test_an_average_stays_between_the_least_and_the_most_it_has_seen(values: list[int]) -> None:
    average = Average(1)
    for value in values:
        average.learn(value, "s", "m")
        assert min(values) <= average.get("s", "m") <= max(values)


@given(st.lists(st.integers(0, 100), max_size=200), st.integers(2, 20))
def test_only_the_keys_used_last_are_remembered(models: list[int], most: int) -> None:
    average = Average(7, most)
    for model in models:
        average.learn(100, "s", f"m{model}")
    last = list(dict.fromkeys(reversed(models)))
    for model in last[: most - 1]:
        assert average.get("s", f"m{model}") == 100
    if models:
        assert average.get("s") == 100


# --- when a job will start -----------------------------------------------------------------------
@given(amounts, st.lists(st.tuples(st.integers(1, 10**9), amounts), max_size=MIN_RATIOS - 1))
def test_until_enough_is_known_the_formula_stands(
    predicted: int, past: list[tuple[int, int]]
) -> None:
    calibration = Calibration()
    for each in past:
        calibration.learn(*each)
    assert calibration.eta(predicted) == Eta(predicted, 2 * predicted)


@given(
    amounts,
    st.lists(st.tuples(st.integers(0, 10**9), amounts), min_size=MIN_RATIOS, max_size=60),
)
def test_the_likely_start_is_never_after_the_late_one(
    predicted: int, past: list[tuple[int, int]]
) -> None:
    calibration = Calibration()
    for each in past:
        calibration.learn(*each)
    eta = calibration.eta(predicted)
    assert 0 <= eta.p50 <= eta.p90


@pytest.mark.parametrize("factor", [0.5, 1, 3])
def test_a_steady_error_is_corrected_and_the_past_is_forgotten(factor: float) -> None:
    calibration = Calibration()
    for _ in range(50):
        calibration.learn(1000, 77_000)
    for _ in range(MAX_RATIOS):
        calibration.learn(1000, int(1000 * factor))
    assert calibration.eta(10_000) == Eta(int(10_000 * factor), int(10_000 * factor))


def test_what_was_told_to_start_at_once_teaches_nothing() -> None:
    calibration = Calibration()
    for _ in range(MIN_RATIOS):
        calibration.learn(0, 500)
    assert calibration.is_new()


def test_a_start_before_the_clock_of_whoever_told_it_is_no_wait() -> None:
    calibration = Calibration()
    for _ in range(MIN_RATIOS):
        calibration.learn(1000, -5)
    assert calibration.eta(1000) == Eta(0, 0)


@given(st.integers(0, 10**9))
def test_a_position_is_exact_to_a_thousand_and_then_two_digits(position: int) -> None:
    shown = rounded(position)
    assert shown <= position
    if position <= 1000:
        assert shown == position
    else:
        assert shown > position * 0.9
        assert set(str(shown)[2:]) <= {"0"}


# --- the price of a skip -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("duration", "cost"),
    [(0, 1), (10, 1), (10.1, 3), (30, 3), (60, 5), (61, 10), (120, 10), (120.5, 15), (9999, 15)],
)
def test_a_skip_costs_by_duration(duration: float, cost: int) -> None:
    assert price(duration, CreditSettings()) == cost


@given(st.floats(0, 10**6), st.floats(0, 10**6))
def test_a_longer_job_never_skips_cheaper(duration: float, more: float) -> None:
    prices = CreditSettings()
    assert price(duration, prices) <= price(duration + more, prices) <= 15


def test_prices_can_be_set() -> None:
    prices = CreditSettings("gold", ((5, 2), (50, 4)), longer_skip_price=9)
    assert [price(each, prices) for each in (5, 6, 50, 51)] == [2, 4, 4, 9]
    assert price(0, CreditSettings(skip_prices=(), longer_skip_price=2)) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"currency": "two words"},
        {"longer_skip_price": 0},
        {"skip_prices": ((10, 0),)},
        {"skip_prices": ((10, 2_000_000),)},
        {"skip_prices": ((0, 1),)},
        {"skip_prices": ((30, 1), (10, 3))},
        {"skip_prices": ((10, 1), (10, 3))},
        {"skip_prices": ((float("nan"), 1),)},
    ],
    ids=str,
)
def test_prices_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        CreditSettings(**wrong)
