"""What owners are told: from where their job stands, and from past errors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.engine.eta import (
    MAX_PREDICTIONS,
    USUAL_WEIGHT,
    EtaOutcome,
    Forecasts,
    ServiceRate,
    Waiting,
    is_busy,
)
from fairlane.index.index import Standing
from fairlane.policy.estimate import FIRST_COST_MICROSECONDS
from fairlane.policy.eta_calibration import MIN_RATIOS, Eta

JOB = Waiting("j", "s", "low", "m", 0)
BUSY = ServiceRate(slots=2, cost=10, free=False)


def standing(position: int, *reasons: str, behind_own: int = 0) -> Standing:
    return Standing(position, 0, 0, max(0, position - 1), behind_own, reasons)


def taught(forecasts: Forecasts, job: Waiting, where: Standing, wait: int) -> None:
    """As many of its like as are needed to be believed waited so long. Its model is loaded."""
    for slot in range(BUSY.slots):
        forecasts.eta(job, where, BUSY, 0)
        forecasts.started(f"in slot {slot}", "s", job.model, 0)
    for number in range(MIN_RATIOS):
        forecasts.eta(job._replace(id=f"{number}"), where, BUSY, 0)
        forecasts.started(f"{number}", "s", job.model, wait)


def test_where_a_slot_is_free_the_first_starts_now() -> None:
    assert Forecasts().eta(JOB, standing(1), BUSY._replace(free=True), 0) == Eta(0, 0)


def test_where_all_are_busy_one_more_must_end() -> None:
    assert Forecasts().eta(JOB, standing(1), BUSY, 0).p50 == 5
    assert Forecasts().eta(JOB, standing(5), BUSY, 0).p50 == 25


def test_a_job_whose_time_has_not_come_waits_for_that_too() -> None:
    later = JOB._replace(ready_at=100)
    forecasts = Forecasts()
    assert forecasts.eta(later, standing(0), BUSY, 40) == Eta(65, 70)
    assert forecasts.started("j", "s", "m", 107) == EtaOutcome(2, kept=True)
    taught(forecasts, JOB, standing(1), 1)
    assert forecasts.eta(later, standing(0), BUSY, 40) == Eta(61, 61), "not before its time"


@given(st.integers(1, 1000), st.integers(1, 100), st.integers(0, 10**9))
def test_more_ahead_or_fewer_slots_never_start_a_job_sooner(
    position: int, slots: int, cost: int
) -> None:
    def told(position: int, slots: int) -> int:
        return Forecasts().eta(JOB, standing(position), ServiceRate(slots, cost, free=False), 0).p50

    assert told(position + 1, slots) >= told(position, slots) >= told(position, slots + 1)


def test_errors_of_the_past_correct_what_is_said_next() -> None:
    forecasts = Forecasts()
    taught(forecasts, JOB, standing(1), 15)
    assert forecasts.eta(JOB, standing(1), BUSY, 0) == Eta(15, 15)
    assert forecasts.eta(JOB._replace(tier="high"), standing(1), BUSY, 0) == Eta(5, 10)


def test_who_has_own_work_first_is_overtaken_more_often() -> None:
    forecasts = Forecasts()
    taught(forecasts, JOB, standing(1), 15)
    assert forecasts.eta(JOB, standing(2, behind_own=1), BUSY, 0).p50 == 30  # as its tier
    taught(forecasts, JOB, standing(2, behind_own=1), 80)
    assert forecasts.eta(JOB, standing(2, behind_own=1), BUSY, 0).p50 == 80
    assert forecasts.eta(JOB, standing(2), BUSY, 0).p50 == 30


def test_what_is_in_memory_comes_sooner_than_what_is_not() -> None:
    forecasts = Forecasts()
    for number in range(MIN_RATIOS):
        cold = JOB._replace(id=f"cold {number}", model=f"m{number}")
        forecasts.eta(cold, standing(1), BUSY, 0)
        forecasts.started(cold.id, "s", cold.model, 50)
    taught(forecasts, JOB, standing(1), 5)
    assert forecasts.eta(JOB, standing(1), BUSY, 0).p50 == 5
    assert forecasts.eta(JOB._replace(model="m0"), standing(1), BUSY, 0).p50 == 50


def test_what_was_said_first_counts() -> None:
    forecasts = Forecasts()
    for number in range(MIN_RATIOS):
        job = JOB._replace(id=f"{number}")
        forecasts.eta(job, standing(2), BUSY, 0)
        forecasts.eta(job, standing(1), BUSY, 9)
        assert forecasts.started(job.id, "s", "m", 12) == EtaOutcome(2, kept=True)
    assert forecasts.eta(JOB, standing(1), BUSY, 0).p50 == 6


def test_one_long_job_hardly_changes_what_the_next_are_told() -> None:
    forecasts = Forecasts()
    for number in range(USUAL_WEIGHT):
        forecasts.eta(JOB._replace(id=f"{number}"), standing(1), BUSY, 0)
    slower = BUSY._replace(cost=10 + 100 * USUAL_WEIGHT)
    assert forecasts.eta(JOB._replace(id="k"), standing(1), slower, 0).p50 == 5
    assert forecasts.eta(JOB._replace(id="l"), standing(1), slower, 0).p50 == 55


def test_the_first_guess_is_forgotten_when_a_job_has_ended() -> None:
    forecasts = Forecasts()
    forecasts.eta(JOB, standing(1), BUSY._replace(cost=FIRST_COST_MICROSECONDS), 0)
    assert forecasts.eta(JOB, standing(1), BUSY, 0).p50 == 5


def test_only_so_many_are_remembered_and_those_that_will_not_start_make_room() -> None:
    forecasts = Forecasts()
    assert not forecasts
    for number in range(MAX_PREDICTIONS + 1):
        forecasts.eta(JOB._replace(id=f"{number}"), standing(1), BUSY, 0)
    assert forecasts.started(f"{MAX_PREDICTIONS}", "s", "m", 1) is None
    forecasts.forget("0")
    forecasts.eta(JOB, standing(1), BUSY, 0)
    assert forecasts.started("j", "s", "m", 6) == EtaOutcome(1, kept=True)


def test_those_still_to_come_are_looked_at_in_turn() -> None:
    forecasts = Forecasts()
    for number in range(3):
        forecasts.eta(JOB._replace(id=f"{number}"), standing(1), BUSY, number)
    assert forecasts.not_started(2) == {"0": 0, "1": 1}
    assert forecasts.not_started(2) == {"2": 2, "0": 0}


def test_a_full_pool_is_a_reason_other_reasons_are_not() -> None:
    assert is_busy(standing(1, "paused", "busy:svc:s:1/1"))
    assert not is_busy(standing(1, "rate:svc:s:1/1", "reserving"))
