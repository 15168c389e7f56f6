"""What owners are told: from where their job stands, and from past errors."""

from __future__ import annotations

from fairlane.engine.forecast import MOST_PREDICTIONS, Forecasts, Serving, Waiting, is_busy
from fairlane.index.index import Standing
from fairlane.policy.eta import FEWEST, Eta

JOB = Waiting("j", "s", "low", 0)
BUSY = Serving(slots=2, cost=10, free=False)


def standing(position: int, *reasons: str) -> Standing:
    return Standing(position, 0, 0, 0, 0, reasons)


def test_where_a_slot_is_free_the_first_starts_now() -> None:
    assert Forecasts().eta(JOB, standing(1), BUSY._replace(free=True), 0) == Eta(0, 0)


def test_where_all_are_busy_one_more_must_end() -> None:
    assert Forecasts().eta(JOB, standing(1), BUSY, 0).p50 == 5
    assert Forecasts().eta(JOB, standing(5), BUSY, 0).p50 == 25


def test_a_job_whose_time_has_not_come_waits_for_that_too() -> None:
    assert Forecasts().eta(JOB._replace(ready_at=100), standing(0), BUSY, 40).p50 == 65


def test_errors_of_the_past_correct_what_is_said_next() -> None:
    forecasts = Forecasts()
    for number in range(FEWEST):
        forecasts.eta(JOB._replace(id=f"{number}"), standing(1), BUSY, 0)
        forecasts.started(f"{number}", "s", "low", 15)
    assert forecasts.eta(JOB, standing(1), BUSY, 0) == Eta(15, 15)
    assert forecasts.eta(JOB._replace(tier="high"), standing(1), BUSY, 0) == Eta(5, 10)


def test_what_was_said_first_counts() -> None:
    forecasts = Forecasts()
    for number in range(FEWEST):
        job = JOB._replace(id=f"{number}")
        forecasts.eta(job, standing(2), BUSY, 0)
        forecasts.eta(job, standing(1), BUSY, 9)
        forecasts.started(job.id, "s", "low", 10)
    assert forecasts.eta(JOB, standing(1), BUSY, 0).p50 == 5


def test_only_so_many_are_remembered() -> None:
    forecasts = Forecasts()
    assert not forecasts
    for number in range(MOST_PREDICTIONS + 1):
        forecasts.eta(JOB._replace(id=f"{number}"), standing(1), BUSY, 0)
    forecasts.started("0", "s", "low", 1)
    assert forecasts


def test_a_full_pool_is_a_reason_other_reasons_are_not() -> None:
    assert is_busy(standing(1, "paused", "busy:svc:s:1/1"))
    assert not is_busy(standing(1, "rate:svc:s:1/1", "reserving"))
