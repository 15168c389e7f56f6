"""Drives an index by hand: no event loop, no sleeping, time only moves when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import count
from typing import Any, TypeVar

from fairlane.clock import ManualClock, seconds
from fairlane.index.index import Freed, Picks, Proposal
from fairlane.index.memory import MemoryIndex
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Affinity, Provider, Service
from fairlane.model.step import Lane
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Loaded, Worker

T = TypeVar("T")

TIERS = Tiers(
    [
        Tier("high"),
        Tier("medium", {"high": 40}),
        Tier("low", {"medium": 20, "high": 60}),
    ]
)
HIGH, MEDIUM, LOW = 0, 1, 2
WORKER = Worker("w")
COLD = Loaded()


def plain(name: str = "s", **more: object) -> Service:
    """A service without model affinity."""
    return Service(name, affinity=Affinity.NONE, **more)  # type: ignore[arg-type]


def at_once(answer: Coroutine[Any, Any, T]) -> T:
    """What an index in memory answers. It never waits for anything."""
    try:
        answer.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("the index waited")


def job(
    name: str,
    *,
    at: float = 0,
    service: str = "s",
    rank: int = MEDIUM,
    user: str = "u",
    model: str = "",
    cost: float = 1,
    cap: int = 0,
    band: Band = Band.TIER,
    rev: int = 1,
    ready_at: float = 0,
    regions: tuple[str, ...] = (),
    capabilities: tuple[str, ...] = (),
) -> Entry:
    """A waiting job. Times in seconds."""
    return Entry(
        name,
        rev,
        Lane(service, regions, capabilities).name,
        band,
        rank,
        seconds(at),
        seconds(ready_at),
        user,
        model,
        seconds(cost),
        cap,
    )


class Driver:
    """An index, its clock, and what is running."""

    def __init__(self, catalog: Catalog, start: float = 0) -> None:
        self.now = seconds(start)
        numbers = count(1)
        self.index = MemoryIndex(catalog, ManualClock(self.now), lambda: f"t{next(numbers)}")
        at_once(self.index.begin("e"))
        assert at_once(self.index.open("e", self.now))
        self.running: dict[str, Proposal] = {}

    def pass_time(self, duration: float) -> None:
        self.now += seconds(duration)

    def put(self, *entries: Entry) -> None:
        at_once(self.index.put(entries, self.now))

    def take(self, *entries: Entry) -> None:
        at_once(self.index.take([(entry.id, entry.rev) for entry in entries]))

    def picks(self, n: int, worker: Worker = WORKER, loaded: Loaded = COLD) -> Picks:
        picks = at_once(self.index.claim(worker, loaded, n, self.now, "e"))
        self.running |= {each.token: each for each in picks.proposals}
        return picks

    def claim(self, n: int = 1, worker: Worker = WORKER, loaded: Loaded = COLD) -> list[Proposal]:
        return self.picks(n, worker, loaded).proposals

    def names(self, n: int = 1, worker: Worker = WORKER, loaded: Loaded = COLD) -> list[str]:
        """The ids of the next n jobs, which keep running."""
        return [each.entry.id for each in self.claim(n, worker, loaded)]

    def served(self, n: int, worker: Worker = WORKER, loaded: Loaded = COLD) -> list[Entry]:
        """The next n jobs, one after the other, each over at once as estimated."""
        found = []
        for _ in range(n):
            picked = self.claim(1, worker, loaded)
            if not picked:
                break
            found.append(picked[0].entry)
            self.finish(picked[0])
        return found

    def finish(self, proposal: Proposal, actual: float | None = None) -> None:
        del self.running[proposal.token]
        cost = proposal.entry.cost if actual is None else seconds(actual)
        at_once(self.index.free([Freed(proposal.token, cost)], self.now))

    def drop(self, proposal: Proposal) -> None:
        del self.running[proposal.token]
        at_once(self.index.drop([proposal.token], self.now))

    def configure(self, catalog: Catalog) -> None:
        at_once(self.index.configure(catalog, 0))


def world(
    *services: Service,
    tiers: Tiers = TIERS,
    providers: Iterable[Provider] = (),
    start: float = 0,
) -> Driver:
    return Driver(Catalog(tiers, services, providers), start)


class Run:
    """What came of one simulated workload. Times in microseconds."""

    def __init__(self) -> None:
        self.started: dict[str, int] = {}
        self.order: list[Entry] = []
        self.idle_with_work: list[int] = []

    def wait(self, entry: Entry) -> int:
        return self.started[entry.id] - entry.score


def simulate(
    driver: Driver,
    arrivals: Sequence[Entry],
    slots: int,
    look: Callable[[Proposal, int], None] | None = None,
) -> Run:
    """Serve arrivals (by score) with this many workers; every job runs for its cost."""
    run = Run()
    todo = sorted(arrivals, key=lambda entry: (entry.score, entry.id))
    ends: list[tuple[int, str]] = []
    at = waiting = 0
    while at < len(todo) or ends:
        times = [todo[at].score] if at < len(todo) else []
        driver.now = min([*times, *(end for end, _ in ends)])
        for end, token in [each for each in ends if each[0] <= driver.now]:
            ends.remove((end, token))
            driver.finish(driver.running[token])
        while at < len(todo) and todo[at].score <= driver.now:
            driver.put(todo[at])
            at += 1
            waiting += 1
        while len(ends) < slots and (picked := driver.claim(1, Worker(f"w{len(ends)}"))):
            entry = picked[0].entry
            waiting -= 1
            run.started[entry.id] = driver.now
            run.order.append(entry)
            if look is not None:
                look(picked[0], driver.now)
            ends.append((driver.now + entry.cost, picked[0].token))
        if waiting and len(ends) < slots:
            run.idle_with_work.append(driver.now)
    return run


def fifo(arrivals: Sequence[Entry], slots: int) -> dict[str, int]:
    """When each would start if all were served in the order of their coming."""
    free_at = [0] * slots
    started = {}
    for entry in sorted(arrivals, key=lambda each: (each.score, each.id)):
        first = min(range(slots), key=free_at.__getitem__)
        started[entry.id] = max(free_at[first], entry.score)
        free_at[first] = started[entry.id] + entry.cost
    return started
