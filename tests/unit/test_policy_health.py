"""When a gate closes for everybody, and how it opens again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlane.policy.health import (
    FIRST_DELAY,
    LONGEST_DELAY,
    Gate,
    failed,
    forget_probe,
    let_through,
    succeeded,
)

NOW = 1_000_000_000
SECOND = 1_000_000


def after_failures(*jobs: str) -> Gate:
    gate = Gate()
    for job in jobs:
        gate = failed(gate, f"token of {job}", job, NOW).gate
    return gate


def test_three_failures_in_a_row_from_different_jobs_close_the_gate() -> None:
    assert not after_failures("a", "b").sick
    gate = after_failures("a", "b", "c")
    assert gate.sick
    assert gate.closed_until == NOW + FIRST_DELAY


@given(st.lists(st.sampled_from("ab"), max_size=20))
def test_two_sick_jobs_alone_never_close_it(jobs: list[str]) -> None:
    assert not after_failures(*jobs).sick


def test_after_two_failures_one_call_looks_a_second_later() -> None:
    """Three at once would be more than a service with one slot should hear."""
    assert after_failures("a").admits(NOW)
    gate = after_failures("a", "b")
    assert not gate.admits(NOW + FIRST_DELAY - 1)
    assert gate.admits(NOW + FIRST_DELAY)
    looking = let_through(gate, "t")
    assert not looking.admits(NOW + FIRST_DELAY)
    assert failed(looking, "t", "c", NOW + FIRST_DELAY).gate.sick


def test_in_doubt_any_answer_opens_it() -> None:
    assert succeeded(after_failures("a", "b"), "an older call") == Gate()
    assert succeeded(let_through(after_failures("a", "b"), "t"), "an older call") == Gate()


def test_an_answer_between_ends_the_streak() -> None:
    gate = succeeded(after_failures("a", "b"), "any")
    assert gate == Gate()
    assert not failed(gate, "t", "c", NOW).gate.closed


def test_the_failures_that_closed_it_cost_their_jobs_nothing() -> None:
    for quiet in (failed(Gate(), "t", "a", NOW), failed(after_failures("a"), "t", "b", NOW)):
        assert (quiet.free, quiet.forgiven) == (False, ())
    last = failed(after_failures("a", "b"), "t", "c", NOW)
    assert last.free
    assert set(last.forgiven) == {"a", "b"}


def test_a_service_that_says_when_to_come_back_is_left_alone_until_then() -> None:
    gate = failed(after_failures("a", "b"), "t", "c", NOW, retry_after=7 * SECOND).gate
    assert gate.closed_until == NOW + 7 * SECOND
    assert not gate.admits(NOW + 7 * SECOND - 1)
    assert gate.admits(NOW + 7 * SECOND)


def test_failed_probes_double_the_delay_up_to_a_minute_and_cost_nothing() -> None:
    gate, now, delays = after_failures("a", "b", "c"), NOW, []
    for n in range(9):
        now = gate.closed_until
        failure = failed(let_through(gate, f"p{n}"), f"p{n}", "d", now)
        assert failure.free
        gate = failure.gate
        delays.append((gate.closed_until - now) // SECOND)
    assert delays == [2, 4, 8, 16, 32, 60, 60, 60, 60]


def test_only_the_probe_opens_it() -> None:
    gate = let_through(after_failures("a", "b", "c"), "probe")
    assert succeeded(gate, "an older call") == gate
    assert succeeded(gate, "probe") == Gate()


def test_a_probe_that_says_nothing_makes_room_for_another() -> None:
    gate = let_through(after_failures("a", "b", "c"), "probe")
    late = gate.closed_until
    assert not gate.admits(late)
    assert forget_probe(gate, "another") == gate
    assert forget_probe(gate, "probe").admits(late)


class AGate(RuleBasedStateMachine):
    """Calls come, answer, fail or vanish in any order; at most one looks behind a closed gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.now, self.calls, self.made = Gate(), NOW, list[str](), 0
        self.behind: set[str] = set()

    @rule(duration=st.integers(0, 70 * SECOND))
    def time_passes(self, duration: int) -> None:
        self.now += duration

    @precondition(lambda self: self.gate.admits(self.now))
    @rule()
    def a_call_is_made(self) -> None:
        self.made += 1
        token = f"t{self.made}"
        if self.gate.closed:
            assert self.now >= self.gate.closed_until
            self.behind.add(token)
        self.gate = let_through(self.gate, token)
        self.calls.append(token)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def it_answers(self, data: st.DataObject) -> None:
        token = self._ends(data)
        was, self.gate = self.gate, succeeded(self.gate, token)
        assert self.gate in {was, Gate()}

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), retry_after=st.sampled_from([0, 0, 5 * SECOND]))
    def it_fails(self, data: st.DataObject, retry_after: int) -> None:
        token = self._ends(data)
        was_sick = self.gate.sick
        failure = failed(self.gate, token, f"job of {token}", self.now, retry_after)
        self.gate = failure.gate
        assert failure.free == self.gate.sick
        assert not (was_sick and failure.forgiven)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def it_vanishes(self, data: st.DataObject) -> None:
        self.gate = forget_probe(self.gate, self._ends(data))

    def _ends(self, data: st.DataObject) -> str:
        token = data.draw(st.sampled_from(self.calls))
        self.calls.remove(token)
        self.behind.discard(token)
        return token

    @invariant()
    def at_most_one_probe_is_out(self) -> None:
        if self.gate.closed:
            assert len(self.behind) <= 1
            assert {self.gate.probe} - {""} == self.behind
        else:
            self.behind.clear()

    @invariant()
    def it_never_stays_closed_without_end(self) -> None:
        if self.gate.closed:
            assert self.gate.closed_until <= self.now + LONGEST_DELAY
            assert self.gate.probe or self.gate.admits(self.gate.closed_until)


AGate.TestCase.settings = settings(max_examples=40)
test_a_gate_lets_one_look_at_a_time = AGate.TestCase
