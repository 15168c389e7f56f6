"""Who was refused and asks again at once is heard in turn."""

from __future__ import annotations

import pytest

from fairlane.api.overload.retry_pacing import (
    FIRST,
    IN_A_STORM,
    MAX_PACING_SECONDS,
    MAX_PENDING_BYTES,
    SHARE,
    TICK_SECONDS,
    RetryPacer,
)


class Hands:
    """A clock that is moved by hand, and by those who are heard."""

    def __init__(self, hearing: float = FIRST * SHARE) -> None:
        self.now, self.hearing = 0.0, hearing

    def __call__(self) -> float:
        return self.now


class Ear:
    """Somebody who asks again, and is heard."""

    def __init__(self, turns: RetryPacer, clock: Hands, size: int = 100) -> None:
        self._clock = clock
        self.is_heard = not turns.wait(self, size)

    def go_on(self) -> None:
        self._clock.now += self._clock.hearing
        self.is_heard = True


async def test_a_few_are_heard_at_once_and_many_as_often_as_there_is_time_for() -> None:
    clock = Hands()
    clock.now = 1.0
    turns = RetryPacer(clock)
    free = round(TICK_SECONDS / FIRST) + 1
    ears = [Ear(turns, clock) for _ in range(free + 100)]
    assert all(ear.is_heard for ear in ears[: free - 1])
    assert not any(ear.is_heard for ear in ears[free + 1 :])
    clock.now += 50 * FIRST
    turns.call()
    heard = [ear.is_heard for ear in ears[free:]]
    assert heard == sorted(heard, reverse=True), "in their order"
    assert 49 <= sum(heard) <= 52


async def test_nobody_waits_longer_than_a_moment() -> None:
    clock = Hands()
    turns = RetryPacer(clock)
    ears = [Ear(turns, clock) for _ in range(3 * round(MAX_PACING_SECONDS / FIRST))]
    clock.now = MAX_PACING_SECONDS
    turns.call()
    assert all(ear.is_heard for ear in ears)


async def test_who_would_fill_the_memory_with_waiting_is_heard_at_once() -> None:
    clock = Hands()
    turns = RetryPacer(clock)
    ears = [Ear(turns, clock, MAX_PENDING_BYTES // 100) for _ in range(200)]
    assert 98 <= sum(not ear.is_heard for ear in ears) <= 100


@pytest.mark.parametrize(
    ("slower", "asking", "share"),
    [(0.5, 100, SHARE), (2.0, 100, SHARE), (0.5, 1_000, IN_A_STORM)],
)
async def test_they_are_heard_for_a_part_of_the_time_however_long_one_takes(
    slower: float, asking: int, share: float
) -> None:
    clock = Hands(FIRST * SHARE * slower)
    turns, ears, known, heard = RetryPacer(clock), list[Ear](), 5.0, 0
    while clock.now < 2 * known:
        ears += [Ear(turns, clock) for _ in range(asking - len(ears))]
        clock.now += TICK_SECONDS
        turns.call()
        if clock.now > known:
            heard += sum(ear.is_heard for ear in ears)
        ears = [ear for ear in ears if not ear.is_heard]
    part = heard * clock.hearing / (clock.now - known)
    assert share * 0.8 < part < share * 1.2
