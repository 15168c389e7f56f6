"""When a gate closes for everybody, and how it opens again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlane.policy.circuit_breaker import (
    FIRST_DELAY_MICROSECONDS,
    MAX_DELAY_MICROSECONDS,
    CircuitBreaker,
    failed,
    forget_probe,
    let_through,
    succeeded,
)
from fairlane.units import SECOND

NOW = 1_000_000_000


def after_failures(*jobs: str) -> CircuitBreaker:
    breaker = CircuitBreaker()
    for job in jobs:
        breaker = failed(breaker, f"token of {job}", job, NOW).breaker
    return breaker


def test_three_failures_in_a_row_from_different_jobs_close_the_gate() -> None:
    assert not after_failures("a", "b").confirmed
    breaker = after_failures("a", "b", "c")
    assert breaker.confirmed
    assert breaker.open_until == NOW + FIRST_DELAY_MICROSECONDS


@given(st.lists(st.sampled_from("ab"), max_size=20))
def test_two_sick_jobs_alone_never_close_it(jobs: list[str]) -> None:
    assert not after_failures(*jobs).confirmed


def test_after_two_failures_one_call_looks_a_second_later() -> None:
    """Three at once would be more than a service with one slot should hear."""
    assert after_failures("a").admits(NOW)
    breaker = after_failures("a", "b")
    assert not breaker.admits(NOW + FIRST_DELAY_MICROSECONDS - 1)
    assert breaker.admits(NOW + FIRST_DELAY_MICROSECONDS)
    looking = let_through(breaker, "t")
    assert not looking.admits(NOW + FIRST_DELAY_MICROSECONDS)
    assert failed(looking, "t", "c", NOW + FIRST_DELAY_MICROSECONDS).breaker.confirmed


def test_in_doubt_any_answer_opens_it() -> None:
    assert succeeded(after_failures("a", "b"), "an older call") == CircuitBreaker()
    assert (
        succeeded(let_through(after_failures("a", "b"), "t"), "an older call") == CircuitBreaker()
    )


def test_an_answer_between_ends_the_streak() -> None:
    breaker = succeeded(after_failures("a", "b"), "any")
    assert breaker == CircuitBreaker()
    assert not failed(breaker, "t", "c", NOW).breaker.is_open


def test_the_failures_that_closed_it_cost_their_jobs_nothing() -> None:
    for quiet in (
        failed(CircuitBreaker(), "t", "a", NOW),
        failed(after_failures("a"), "t", "b", NOW),
    ):
        assert (quiet.free, quiet.attempts_returned) == (False, ())
    last = failed(after_failures("a", "b"), "t", "c", NOW)
    assert last.free
    assert set(last.attempts_returned) == {"a", "b"}


def test_a_service_that_says_when_to_come_back_is_left_alone_until_then() -> None:
    breaker = failed(after_failures("a", "b"), "t", "c", NOW, retry_after=7 * SECOND).breaker
    assert breaker.open_until == NOW + 7 * SECOND
    assert not breaker.admits(NOW + 7 * SECOND - 1)
    assert breaker.admits(NOW + 7 * SECOND)


def test_failed_probes_double_the_delay_up_to_a_minute_and_cost_nothing() -> None:
    breaker, now, delays = after_failures("a", "b", "c"), NOW, []
    for n in range(9):
        now = breaker.open_until
        failure = failed(let_through(breaker, f"p{n}"), f"p{n}", "d", now)
        assert failure.free
        breaker = failure.breaker
        delays.append((breaker.open_until - now) // SECOND)
    assert delays == [2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_only_the_probe_opens_it() -> None:
    breaker = let_through(after_failures("a", "b", "c"), "probe")
    assert succeeded(breaker, "an older call") == breaker
    assert succeeded(breaker, "probe") == CircuitBreaker()


def test_a_probe_that_says_nothing_makes_room_for_another() -> None:
    breaker = let_through(after_failures("a", "b", "c"), "probe")
    late = breaker.open_until
    assert not breaker.admits(late)
    assert forget_probe(breaker, "another") == breaker
    assert forget_probe(breaker, "probe").admits(late)


class AGate(RuleBasedStateMachine):
    """Calls come, answer, fail or vanish in any order; at most one looks behind a closed gate."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker, self.now, self.calls, self.made = CircuitBreaker(), NOW, list[str](), 0
        self.behind: set[str] = set()

    @rule(duration=st.integers(0, 70 * SECOND))
    def time_passes(self, duration: int) -> None:
        self.now += duration

    @precondition(lambda self: self.breaker.admits(self.now))
    @rule()
    def a_call_is_made(self) -> None:
        self.made += 1
        token = f"t{self.made}"
        if self.breaker.is_open:
            assert self.now >= self.breaker.open_until
            self.behind.add(token)
        self.breaker = let_through(self.breaker, token)
        self.calls.append(token)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def it_answers(self, data: st.DataObject) -> None:
        token = self._ends(data)
        was, self.breaker = self.breaker, succeeded(self.breaker, token)
        assert self.breaker in {was, CircuitBreaker()}

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), retry_after=st.sampled_from([0, 0, 5 * SECOND]))
    def it_fails(self, data: st.DataObject, retry_after: int) -> None:
        token = self._ends(data)
        was_sick = self.breaker.confirmed
        failure = failed(self.breaker, token, f"job of {token}", self.now, retry_after)
        self.breaker = failure.breaker
        assert failure.free == self.breaker.confirmed
        assert not (was_sick and failure.attempts_returned)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def it_vanishes(self, data: st.DataObject) -> None:
        self.breaker = forget_probe(self.breaker, self._ends(data))

    def _ends(self, data: st.DataObject) -> str:
        token = data.draw(st.sampled_from(self.calls))
        self.calls.remove(token)
        self.behind.discard(token)
        return token

    @invariant()
    def at_most_one_probe_is_out(self) -> None:
        if self.breaker.is_open:
            assert len(self.behind) <= 1
            assert {self.breaker.probe} - {""} == self.behind
        else:
            self.behind.clear()

    @invariant()
    def it_never_stays_closed_without_end(self) -> None:
        if self.breaker.is_open:
            assert self.breaker.open_until <= self.now + MAX_DELAY_MICROSECONDS
            assert self.breaker.probe or self.breaker.admits(self.breaker.open_until)


AGate.TestCase.settings = settings(max_examples=40)
test_a_gate_lets_one_look_at_a_time = AGate.TestCase
