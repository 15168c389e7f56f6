"""The positions that are told agree with the order that is served, on both indexes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.clock import ManualClock
from fairlane.index.index import EXACT_POSITIONS, Freed, Index, Proposal
from fairlane.index.memory import MemoryIndex
from fairlane.index.redis import RedisIndex
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Fairness, Shares
from fairlane.model.worker import Worker
from fairlane.units import SECOND
from tests.unit.driver import COLD, LOW, MEDIUM, TIERS, Driver, at_once, job, plain

CAPS = {"capped": 1, "busy": 2}
Act = tuple[str, int, str, int, int]
"""What happens, to which job or for how long, and the user, tier and cost of a new one."""

verbs = st.sampled_from(
    [*["submit"] * 6, *["skip"] * 4, *["front"] * 3, *["start"] * 3, "wait", "end", "cancel"]
)
acts = st.lists(
    st.tuples(
        verbs,
        st.integers(0, 60),
        st.sampled_from(["ann", "bob", "cyd", "capped", "busy"]),
        st.integers(0, 2),
        st.integers(1, 9),
    ),
    min_size=20,
    max_size=80,
)
shares = st.sampled_from([Shares(), Shares(1000, 1000, 1000), Shares(300, 500, 100)])
numbers = count(1)


@dataclass
class Service:
    """One service whose slots are always free, and what happens to it."""

    index: Index
    now: int = 1000 * SECOND
    waiting: dict[str, Entry] = field(default_factory=dict)
    running: list[Proposal] = field(default_factory=list)
    names: count[int] = field(default_factory=count)

    async def happens(self, acts: Sequence[Act]) -> None:
        await self.index.begin("e")
        await self.index.open("e", self.now)
        for act in acts:
            await self._one(*act)

    async def _one(self, verb: str, n: int, user: str, rank: int, cost: int) -> None:
        entry = [*self.waiting.values()][n % len(self.waiting)] if self.waiting else None
        match verb:
            case "submit":
                regions = ("eu",) if n % 5 == 0 else ()
                at, cap = self.now / SECOND, CAPS.get(user, 0)
                name = f"j{next(self.names)}"
                await self.put(
                    job(name, at=at, user=user, rank=rank, cost=cost, cap=cap, regions=regions)
                )
            case "skip" if entry:
                await self.put(entry._replace(rev=entry.rev + 1, band=Band.SKIP, score=self.now))
            case "front" if entry and entry.band is Band.TIER:
                await self.put(entry._replace(rev=entry.rev + 1, band=Band.FRONT))
            case "cancel" if entry:
                del self.waiting[entry.id]
                await self.index.take([(entry.id, entry.rev)])
            case "wait":
                self.now += n * SECOND
            case "start":
                await self.start()
            case "end" if self.running:
                await self.end(self.running[n % len(self.running)])

    async def put(self, entry: Entry) -> None:
        self.waiting[entry.id] = entry
        await self.index.put([entry], self.now)

    async def start(self) -> Proposal | None:
        picks = await self.index.claim(ANYWHERE, COLD, 1, self.now, "e")
        for proposal in picks.proposals:
            del self.waiting[proposal.entry.id]
            self.running.append(proposal)
            return proposal
        return None

    async def end(self, proposal: Proposal) -> None:
        self.running.remove(proposal)
        await self.index.free([Freed(proposal.token, proposal.entry.cost)], self.now)

    async def served(self) -> list[str]:
        """All that wait, each over at once; when nobody else can go, what ran before ends."""
        order = []
        before = [*self.running]
        while True:
            while (proposal := await self.start()) is not None:
                order.append(proposal.entry.id)
                await self.end(proposal)
            if not before:
                return order
            for each in before:
                await self.end(each)
            before = []

    async def positions(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for name in self.waiting:
            standing = await self.index.standing(name, self.now)
            assert standing is not None
            assert standing.position not in found, (name, found[standing.position])
            found[standing.position] = name
        return found


ANYWHERE = Worker("w", region="eu")


def catalog(fairness: Fairness, share: Shares) -> Catalog:
    return Catalog(TIERS, [plain(fairness=fairness, shares=share)])


async def agree(index: Index, acts: Sequence[Act]) -> None:
    service = Service(index)
    await service.happens(acts)
    told = await service.positions()
    front = [each.entry.id for each in await index.front("s", EXACT_POSITIONS, service.now)]
    assert front == [told[n] for n in sorted(told)][:EXACT_POSITIONS]
    assert [told[n] for n in sorted(told)] == await service.served()
    assert sorted(told) == list(range(1, len(told) + 1))


async def agree_in_memory(acts: Sequence[Act], found: Catalog) -> None:
    await agree(MemoryIndex(found, ManualClock(0)), acts)


async def agree_in_redis(url: str, acts: Sequence[Act], found: Catalog) -> None:
    prefix = f"{{positions{next(numbers)}}}:"
    async with RedisIndex(found, ManualClock(0), url, prefix=prefix) as index:
        await agree(index, acts)


MANY_SKIPS: list[Act] = [
    *(("submit", n, user, n % 3, 1) for n in range(1, 9) for user in ("ann", "bob")),
    *(("skip", n, "", 0, 0) for n in range(8)),
    *(("front", n, "", 0, 0) for n in range(3, 6)),
]
"""More than their credit lets go first."""


async def test_positions_know_when_the_credit_of_skips_is_used_up_in_memory() -> None:
    await agree_in_memory(MANY_SKIPS, catalog(Fairness.USER, Shares()))


async def test_positions_know_when_the_credit_of_skips_is_used_up_in_redis(redis_url: str) -> None:
    await agree_in_redis(redis_url, MANY_SKIPS, catalog(Fairness.USER, Shares()))


@settings(max_examples=100, deadline=None)
@given(acts, st.sampled_from([*Fairness]), shares)
def test_positions_in_memory_are_the_order_of_service(
    acts: list[Act], fairness: Fairness, share: Shares
) -> None:
    asyncio.run(agree_in_memory(acts, catalog(fairness, share)))


@settings(max_examples=25, deadline=None)
@given(acts, st.sampled_from([*Fairness]), shares)
def test_positions_in_redis_are_the_order_of_service(
    redis_url: str, acts: list[Act], fairness: Fairness, share: Shares
) -> None:
    asyncio.run(agree_in_redis(redis_url, acts, catalog(fairness, share)))


def position(driver: Driver, name: str) -> int:
    standing = at_once(driver.index.standing(name, driver.now))
    assert standing is not None
    return standing.position


def test_a_paid_skip_of_a_worse_tier_stands_before_a_better_one() -> None:
    driver = Driver(Catalog(TIERS, [plain()]))
    driver.put(job("better", rank=MEDIUM, user="ann"), job("paid", rank=LOW, user="bob"))
    driver.put(job("paid", rank=LOW, user="bob", band=Band.SKIP, rev=2))
    assert (position(driver, "paid"), position(driver, "better")) == (1, 2)


def test_a_user_at_the_running_limit_stands_behind_all_who_may_start() -> None:
    driver = Driver(Catalog(TIERS, [plain()]))
    driver.put(*(job(f"c{n}", at=n, user="capped", cap=1) for n in range(3)))
    assert driver.names() == ["c0"]
    driver.put(*(job(f"a{n}", at=9 + n, user="ann") for n in range(2)))
    told = {name: position(driver, name) for name in ("a0", "a1", "c1", "c2")}
    assert told == {"a0": 1, "a1": 2, "c1": 3, "c2": 4}


def test_far_back_in_line_the_position_is_an_estimate_behind_all_exact_ones() -> None:
    driver = Driver(Catalog(TIERS, [plain()]))
    driver.put(*(job(f"j{n}", at=n / 10, user=f"u{n % 7}") for n in range(3 * EXACT_POSITIONS)))
    told = [position(driver, f"j{n}") for n in range(3 * EXACT_POSITIONS)]
    assert sorted(told) == list(range(1, 3 * EXACT_POSITIONS + 1))
