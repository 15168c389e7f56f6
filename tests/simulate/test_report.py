"""What a run says about itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.policy.eta_calibration import Eta
from fairlane.simulate.jobs_ahead import JobsAhead
from fairlane.simulate.report import WINDOWS, fairness, longest_gap, quantile, within_two
from fairlane.simulate.run import SimulatedJob
from fairlane.units import SECOND
from tests.simulate.small import PAID, asking, draw, job, plain, settings


def served(ready_at: int, started: int, seconds: int = 1) -> SimulatedJob:
    return SimulatedJob(0, "s", ready_at, started, started, started + seconds)


@pytest.mark.parametrize(("part", "value"), [(0.5, 5), (0.9, 9), (0.95, 10), (0.99, 10), (1, 10)])
def test_a_quantile_is_the_least_that_this_part_does_not_exceed(part: float, value: int) -> None:
    assert quantile(list(range(1, 11)), part) == value


@given(st.lists(st.integers(0, 100), min_size=1), st.floats(0.01, 1))
def test_this_part_does_not_exceed_a_quantile(values: list[int], part: float) -> None:
    ranked = sorted(values)
    found = quantile(ranked, part)
    assert sum(each <= found for each in ranked) >= part * len(ranked) - 0.001 * len(ranked)


def test_a_gap_ends_with_a_start_and_begins_anew_while_work_waits() -> None:
    assert longest_gap([served(0, 4), served(1, 11), served(30, 32)]) == 7


def test_nobody_waits_no_gap() -> None:
    assert longest_gap([served(5, 5), served(9, 9)]) == 0


def test_users_served_alike_are_served_fairly() -> None:
    span = 100 * WINDOWS
    alike = [[served(0, at, 5) for at in range(0, span, 50)] for _ in range(3)]
    assert fairness(alike, span) == pytest.approx(1)


def test_one_who_gets_everything_is_one_of_n() -> None:
    span = 100 * WINDOWS
    takes = [served(0, at, 5) for at in range(0, span, 50)]
    waits = [served(0, span, 5)]
    assert fairness([takes, waits, waits, waits], span) == pytest.approx(0.25, abs=0.02)


def test_fairness_says_nothing_where_nobody_waits_for_long() -> None:
    assert fairness([[served(0, 1)], [served(5, 6)]], 1000) is None


def test_use_counts_own_work_inside_the_span_only() -> None:
    """Two places, a span of 10 s: 5 s of load, 5 s of work; the rest comes after it."""
    report = asking(
        settings(draw(2)), job(0, 20, model="m", load=5), job(10, 20, rank=PAID)
    ).answer()
    assert report.utilisation == pytest.approx(5 / 20)


def test_estimates_are_judged_by_what_came() -> None:
    eta = asking(settings(plain()), *[job(n, 10, user=f"u{n}") for n in range(60)]).answer().eta
    assert eta is not None
    assert eta.told == 60
    assert eta.covered > 0.8
    assert eta.within_two > 0.8


def test_less_than_a_second_is_told_and_counted_as_one() -> None:
    run = asking(settings(plain()), job(0)).run()
    told = [(0.1, 0.9), (0, 1.5), (0, 2.5), (3, 6), (3, 7), (10, 4)]
    run.told = {
        n: (Eta(round(p50 * SECOND), 0), round(wait * SECOND)) for n, (p50, wait) in enumerate(told)
    }
    assert within_two(run, SECOND) == pytest.approx(3 / 6)
    assert within_two(run, 0) == pytest.approx(1 / 6)
    assert within_two(run, 5 * SECOND) == 1


def test_the_jobs_ahead_rule_counts_those_who_wait_for_the_model() -> None:
    jobs = [job(0, 10, model="a"), *[job(0, 10, model=each) for each in ("a", "b", "a")]]
    run = asking(settings(plain()), *jobs).run_with(lambda catalog, _: JobsAhead(catalog))
    assert [eta.p50 // SECOND for eta, _ in run.told.values()] == [0, 0, 0, 1]


def test_waits_over_time_are_told_for_each_tier() -> None:
    report = asking(settings(plain()), *[job(n, 2, rank=n % 2) for n in range(60)]).answer()
    assert set(report.over_time) == {"paid", "free"}
    assert any(value is not None for value in report.over_time["free"])
