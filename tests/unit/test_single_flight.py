"""Callers share one read of a store, its outcome and its failure."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.engine.single_flight import SingleFlight
from fairlane.errors import NotReady

MAX_AGE = 10
CALLERS = 20


class Store:
    """Counts its reads. Each waits until `answers` is set."""

    def __init__(self) -> None:
        self.now = self.reads = 0
        self.is_asked, self.answers = asyncio.Event(), asyncio.Event()
        self.is_silent = False
        self.shared = SingleFlight[int](lambda: self.now, MAX_AGE, max_keys=2)

    async def read(self) -> int:
        self.reads += 1
        self.is_asked.set()
        await self.answers.wait()
        if self.is_silent:
            raise NotReady("no answer in time")
        return self.reads

    async def get(self, key: str = "a") -> int:
        return await self.shared.get(key, self.read)


async def asked(store: Store, times: int = CALLERS) -> list[asyncio.Task[int]]:
    """Callers that wait for an answer."""
    callers = [asyncio.create_task(store.get()) for _ in range(times)]
    await store.is_asked.wait()
    return callers


async def test_a_silent_store_is_asked_once_for_all_who_wait() -> None:
    """S13: nor do later callers wait in turn, each for its own limit of time."""
    store = Store()
    store.is_silent = True
    callers = await asked(store)
    store.now += 5 * MAX_AGE
    late = asyncio.create_task(store.get())
    store.answers.set()
    outcomes = await asyncio.gather(*callers, late, return_exceptions=True)
    assert {type(each) for each in outcomes} == {NotReady}
    store.now += MAX_AGE - 1
    with pytest.raises(NotReady):
        await store.get()
    assert store.reads == 1
    store.is_silent = False
    store.now += 1
    assert await store.get() == 2


async def test_an_outcome_is_kept_for_its_time_and_by_key() -> None:
    store = Store()
    store.answers.set()
    assert [await store.get() for _ in range(3)] == [1, 1, 1]
    assert await store.get("b") == 2
    assert (await store.get(), await store.get("c"), await store.get()) == (1, 3, 4)
    store.now -= 1
    assert await store.get() == 5, "a clock that goes back ends it, too"


async def test_a_caller_that_leaves_does_not_end_the_read_of_the_others() -> None:
    store = Store()
    first, second = await asked(store, 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    store.answers.set()
    assert await second == 1
