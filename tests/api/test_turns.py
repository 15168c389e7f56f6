"""Who was refused and asks again at once is heard in turn."""

from __future__ import annotations

from fairlane.api.turns import A_SECOND, LONGEST, MOST_BYTES, TICK, Turns


class Ear:
    """Somebody who asks again, and is heard."""

    def __init__(self, turns: Turns, size: int = 100) -> None:
        self.is_heard = not turns.wait(self, size)

    def go_on(self) -> None:
        self.is_heard = True


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_few_are_heard_at_once_and_many_as_often_as_there_is_time_for() -> None:
    clock = Hands()
    clock.now = 1.0
    turns = Turns(clock)
    free = round(A_SECOND * TICK) + 1
    ears = [Ear(turns) for _ in range(free + 100)]
    assert all(ear.is_heard for ear in ears[: free - 1])
    assert not any(ear.is_heard for ear in ears[free + 1 :])
    clock.now += 50 / A_SECOND
    turns.call()
    heard = [ear.is_heard for ear in ears[free:]]
    assert heard == sorted(heard, reverse=True), "in their order"
    assert 49 <= sum(heard) <= 52


async def test_nobody_waits_longer_than_a_moment() -> None:
    clock = Hands()
    turns = Turns(clock)
    ears = [Ear(turns) for _ in range(3 * round(A_SECOND * LONGEST))]
    clock.now = LONGEST
    turns.call()
    assert all(ear.is_heard for ear in ears)


async def test_who_would_fill_the_memory_with_waiting_is_heard_at_once() -> None:
    turns = Turns(Hands())
    ears = [Ear(turns, MOST_BYTES // 100) for _ in range(200)]
    assert 98 <= sum(not ear.is_heard for ear in ears) <= 100
