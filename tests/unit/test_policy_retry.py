"""Again, later, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.attempt import Fault
from fairlane.model.state import Code
from fairlane.policy.retry import (
    MAX_BACKOFF_MICROSECONDS,
    MAX_TIMEOUT_MICROSECONDS,
    Bury,
    Fail,
    Retry,
    Tried,
    delay,
    grown,
    judge,
)
from fairlane.units import SECOND

PERMANENT = {
    Fault.INVALID_INPUT: Code.INVALID_INPUT,
    Fault.SERVICE_ERROR: Code.SERVICE_ERROR,
    Fault.RESULT_TOO_LARGE: Code.RESULT_TOO_LARGE,
    Fault.QUALITY: Code.QUALITY,
}
RETRIED = [fault for fault in Fault if fault not in PERMANENT]

attempts = st.integers(1, 100)
jitters = st.integers(0, 999)
timeouts = st.integers(1, 2 * MAX_TIMEOUT_MICROSECONDS)


def tried(fault: Fault, attempt: int = 1, *, free: bool = False) -> Tried:
    return Tried(fault, attempt, 3, 10 * SECOND, 10 * SECOND, free)


@given(attempts, jitters)
def test_back_off_is_a_power_of_two_capped_at_a_minute_and_up_to_a_fifth_shorter(
    attempt: int, jitter: int
) -> None:
    full = min(60, 2**attempt) * SECOND
    assert full * 0.8 <= delay(attempt, jitter) <= full
    assert delay(attempt, 0) == full <= MAX_BACKOFF_MICROSECONDS


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=5), attempts, jitters)
def test_a_list_of_delays_replaces_the_powers_and_its_last_one_lasts(
    listed: list[int], attempt: int, jitter: int
) -> None:
    full = listed[attempt - 1] if attempt <= len(listed) else listed[-1]
    assert full * 0.8 <= delay(attempt, jitter, tuple(listed)) <= full


@given(attempts, jitters)
def test_more_jitter_is_never_a_longer_delay(attempt: int, jitter: int) -> None:
    assert delay(attempt, jitter) <= delay(attempt, max(0, jitter - 1))


@pytest.mark.parametrize(("fault", "code"), PERMANENT.items())
@pytest.mark.parametrize("free", [False, True])
def test_a_fault_that_no_retry_can_help_fails_at_once(fault: Fault, code: Code, free: bool) -> None:
    assert judge(tried(fault, free=free), 0) == Fail(code)


@pytest.mark.parametrize("fault", RETRIED)
def test_other_faults_are_retried_until_the_attempts_are_used_up(fault: Fault) -> None:
    for attempt in (1, 2):
        verdict = judge(tried(fault, attempt), 0)
        assert isinstance(verdict, Retry)
        assert verdict.attempt == attempt
        assert verdict.delay == 2**attempt * SECOND
    assert judge(tried(fault, 3), 0) == Bury()
    assert judge(tried(fault, 4), 0) == Bury()


@pytest.mark.parametrize("fault", RETRIED)
@given(attempt=attempts, jitter=jitters)
def test_a_free_failure_never_costs_an_attempt_nor_buries(
    fault: Fault, attempt: int, jitter: int
) -> None:
    verdict = judge(tried(fault, attempt, free=True), jitter)
    assert isinstance(verdict, Retry)
    assert verdict.attempt == attempt - 1
    assert verdict.timeout == 10 * SECOND


def test_only_a_timeout_grows_the_time_limit() -> None:
    limits = {fault: judge(tried(fault), 0) for fault in RETRIED}
    assert {
        fault: verdict.timeout // SECOND
        for fault, verdict in limits.items()
        if isinstance(verdict, Retry)
    } == {fault: 15 if fault is Fault.TIMEOUT else 10 for fault in RETRIED}


@given(timeouts, st.integers(1, 40))
def test_a_time_limit_grows_by_half_up_to_four_times_and_an_hour(first: int, times: int) -> None:
    limit = first
    for _ in range(times):
        longer = grown(limit, first)
        assert limit <= longer <= limit * 3 // 2
        limit = longer
    assert limit <= max(first, min(4 * first, MAX_TIMEOUT_MICROSECONDS))
    if times > 20 and first > 1:
        assert limit == max(first, min(4 * first, MAX_TIMEOUT_MICROSECONDS))
