"""Who was refused is heard again in turn."""

from __future__ import annotations

from fairlane.api.turns import A_SECOND, LONGEST, TICK, Turns


class Ear:
    def __init__(self) -> None:
        self.hears = True

    def pause_reading(self) -> None:
        self.hears = False

    def resume_reading(self) -> None:
        self.hears = True


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_few_are_heard_at_once_and_many_as_often_as_there_is_time_for() -> None:
    clock = Hands()
    turns = Turns(clock)
    free = round(A_SECOND * TICK)
    ears = [Ear() for _ in range(free + 100)]
    for ear in ears:
        turns.wait(ear)
    assert all(ear.hears for ear in ears[:free])
    assert not any(ear.hears for ear in ears[free + 1 :])
    clock.now = TICK + 50 / A_SECOND
    turns.call()
    heard = [ear.hears for ear in ears[free:]]
    assert heard == sorted(heard, reverse=True), "in their order"
    assert 49 <= sum(heard) <= 52


async def test_nobody_waits_longer_than_a_moment() -> None:
    clock = Hands()
    turns = Turns(clock)
    ears = [Ear() for _ in range(3 * round(A_SECOND * LONGEST))]
    for ear in ears:
        turns.wait(ear)
    clock.now = LONGEST
    turns.call()
    assert all(ear.hears for ear in ears)
