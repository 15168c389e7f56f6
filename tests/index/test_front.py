"""The front of a queue is exactly what the next claims take, on both indexes, with models too."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest

from fairlane.clock import ManualClock
from fairlane.index.index import Freed, Index, NextJob, Proposal, ServiceCallRef
from fairlane.index.memory import MemoryIndex
from fairlane.index.redis import RedisIndex
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Affinity, Executor, Fairness, Region, Service
from fairlane.model.worker import Loaded, Worker
from fairlane.policy.circuit_breaker import OPEN_AFTER_FAILURES
from fairlane.policy.shares import ShareKind
from fairlane.units import SECOND
from tests.unit.driver import COLD, HIGH, LOW, MEDIUM, TIERS, job

CLAIMS = 200
WORKER = Worker("w", region="eu")
USERS = ("ann", "bob", "cyd", "dan", "capped")
numbers = count(1)

SERVICES = {
    "plain": Service("s", affinity=Affinity.NONE),
    "first come": Service("s", fairness=Fairness.NONE, affinity=Affinity.NONE),
    "pulled with models": Service("s", model_load=20),
    "pulled in batches": Service("s", affinity=Affinity.BATCH, batch_size=3),
    "called with models": Service("s", executor=Executor.HTTP, limit=1, model_load=20),
    "called in three slots": Service("s", executor=Executor.HTTP, limit=3, model_load=20),
}

DISPATCHER = Worker("d", regions=("eu", "us", "ap"))
LANES = ((), (), ("eu",), ("us",), ("ap",), ("eu", "us"))


def regions(limit: int) -> dict[str, Region]:
    return {name: Region(name, limit=limit) for name in DISPATCHER.regions}


REGIONAL = {
    "regions": Service("s", affinity=Affinity.NONE, regions=regions(3)),
    "first come in regions": Service(
        "s", fairness=Fairness.NONE, affinity=Affinity.NONE, regions=regions(3)
    ),
    "regions with models": Service("s", executor=Executor.HTTP, model_load=20, regions=regions(3)),
    "regions that share slots": Service(
        "s", executor=Executor.HTTP, limit=9, model_load=20, regions=regions(0)
    ),
}


@dataclass
class Play:
    """Jobs come and are claimed one by one, and each started job ends at once."""

    index: Index
    dice: Random
    worker: Worker = WORKER
    lanes: tuple[tuple[str, ...], ...] = ((), ("eu",))
    now: int = 10_000 * SECOND
    loaded: Loaded = COLD
    waiting: dict[str, Entry] = field(default_factory=dict)
    names: count[int] = field(default_factory=count)

    async def begin(self) -> None:
        await self.index.begin("e")
        await self.index.open("e", self.now)

    async def come(self, n: int) -> None:
        for _ in range(n):
            user = self.dice.choice(USERS)
            entry = job(
                f"j{next(self.names)}",
                at=self.now / SECOND,
                user=user,
                rank=self.dice.choice((HIGH, MEDIUM, LOW, LOW)),
                model=self.dice.choice(("", "m1", "m2", "m3")),
                cost=self.dice.randint(1, 60),
                cap=1 if user == "capped" else 0,
                regions=self.dice.choice(self.lanes),
            )
            self.waiting[entry.id] = entry
            await self.index.put([entry], self.now)

    async def jump(self) -> None:
        """One job is paid for, another is a retry at the front."""
        for band in (Band.SKIP, Band.FRONT):
            entry = self.dice.choice([*self.waiting.values()])
            changed = entry._replace(rev=entry.rev + 1, band=band)
            self.waiting[entry.id] = changed
            await self.index.put([changed], self.now)

    async def claim(self) -> str | None:
        proposal = await self.start()
        if proposal is None:
            return None
        await self.end(proposal)
        return proposal.entry.id

    async def start(self) -> Proposal | None:
        picks = await self.index.claim(self.worker, self.loaded, 1, self.now, "e")
        if not picks.proposals:
            return None
        (proposal,) = picks.proposals
        self.loaded = self.loaded.after(proposal.entry.model, self.now)
        del self.waiting[proposal.entry.id]
        return proposal

    async def end(self, proposal: Proposal) -> None:
        ended = Freed(proposal.token, None, answered=("s", proposal.region))
        await self.index.free([ended], self.now)

    async def front(self, n: int) -> list[NextJob]:
        return await self.index.front("s", n, self.now)


async def play(index: Index, seed: int) -> None:
    """Who is shown is who starts: the next one, the next five and the next hundred."""
    game = Play(index, Random(seed))
    await game.begin()
    await game.come(30)
    for claim in range(CLAIMS):
        shown = [each.entry.id for each in await game.front(game.dice.choice((1, 5, 100)))]
        claims = min(len(shown), game.dice.choice((1, 1, 5)))
        taken = [await game.claim() for _ in range(claims)]
        assert taken == shown[: len(taken)], (claim, seed)
        await game.come(game.dice.choice((0, 1, 1, 3)))
        if claim % 9 == 0 and game.waiting:
            await game.jump()
        game.now += game.dice.choice((0, 1, 7)) * SECOND


@pytest.mark.parametrize("kind", SERVICES)
@pytest.mark.parametrize("seed", range(4))
async def test_who_is_next_in_memory_is_who_starts_next(kind: str, seed: int) -> None:
    await play(MemoryIndex(Catalog(TIERS, [SERVICES[kind]]), ManualClock(0)), seed)


@pytest.mark.parametrize("kind", SERVICES)
async def test_who_is_next_in_redis_is_who_starts_next(kind: str, redis_url: str) -> None:
    prefix = f"{{front{next(numbers)}}}:"
    catalog = Catalog(TIERS, [SERVICES[kind]])
    async with RedisIndex(catalog, ManualClock(0), redis_url, prefix=prefix) as index:
        await play(index, 7)


@dataclass
class Trouble:
    """Regions stop answering, and some calls take long: one of them may be a probe."""

    game: Play
    running: list[Proposal] = field(default_factory=list)

    async def happens(self) -> None:
        match self.game.dice.choice(("", "fails", "hangs", "hangs", "ends", "is lost")):
            case "fails":
                await self._fails(self.game.dice.choice((*DISPATCHER.regions, None)))
            case "hangs":
                await self._hangs()
            case "ends" if self.running:
                await self.game.end(self.running.pop(0))
            case "is lost" if self.running:
                lost = self.running.pop(0)
                call = ServiceCallRef("s", lost.region, lost.token)
                await self.game.index.unavailable(call, lost.entry.id, self.game.now, 0)
                await self.game.index.free([Freed(lost.token, None)], self.game.now)

    async def _fails(self, region: str | None) -> None:
        """The circuit breaker opens, or stays open on suspicion."""
        dice = self.game.dice
        retry_after = dice.choice((0, 0, 5, 40)) * SECOND
        for n in range(dice.choice((OPEN_AFTER_FAILURES - 1, OPEN_AFTER_FAILURES))):
            call = ServiceCallRef("s", region, f"t{n}")
            await self.game.index.unavailable(call, f"gone{n}", self.game.now, retry_after)

    async def _hangs(self) -> None:
        """A call goes on running. Every region keeps free slots."""
        if len(self.running) < 2:
            proposal = await self.game.start()
            self.running += [proposal] if proposal is not None else []


async def play_in_regions(index: Index, seed: int) -> None:
    """Of the jobs that can start, who is shown is who starts. Jobs that cannot start come last, and
    no claim takes them."""
    game = Play(index, Random(seed), DISPATCHER, LANES)
    trouble = Trouble(game)
    await game.begin()
    await game.come(30)
    for claim in range(CLAIMS):
        await trouble.happens()
        front = await game.front(game.dice.choice((1, 5, 100)))
        blocked = [each.blocked for each in front]
        assert blocked == sorted(blocked), "jobs that cannot start come last"
        shown = [each.entry.id for each in front if not each.blocked]
        taken = [await game.claim() for _ in range(game.dice.choice((1, 1, 5)))]
        expected = [*shown, *[None] * len(taken)] if any(blocked) else shown
        assert taken[: len(expected)] == expected[: len(taken)], (claim, seed)
        await game.come(game.dice.choice((0, 1, 1, 3)))
        if claim % 9 == 0 and game.waiting:
            await game.jump()
        game.now += game.dice.choice((0, 0, 1, 7)) * SECOND


@pytest.mark.parametrize("kind", REGIONAL)
@pytest.mark.parametrize("seed", [0, 1, 2, 24, 59])
async def test_who_is_next_in_regions_in_memory_is_who_starts_next(kind: str, seed: int) -> None:
    await play_in_regions(MemoryIndex(Catalog(TIERS, [REGIONAL[kind]]), ManualClock(0)), seed)


@pytest.mark.parametrize("kind", REGIONAL)
async def test_who_is_next_in_regions_in_redis_is_who_starts_next(
    kind: str, redis_url: str
) -> None:
    prefix = f"{{front{next(numbers)}}}:"
    catalog = Catalog(TIERS, [REGIONAL[kind]])
    async with RedisIndex(catalog, ManualClock(0), redis_url, prefix=prefix) as index:
        await play_in_regions(index, 7)


@pytest.mark.parametrize("kind", REGIONAL)
async def test_both_indexes_show_the_same_front_in_regions(kind: str, redis_url: str) -> None:
    catalog = Catalog(TIERS, [REGIONAL[kind]])
    prefix = f"{{front{next(numbers)}}}:"
    async with RedisIndex(catalog, ManualClock(0), redis_url, prefix=prefix) as other:
        games = [
            Play(index, Random(11), DISPATCHER, LANES)
            for index in (MemoryIndex(catalog, ManualClock(0)), other)
        ]
        troubles = [Trouble(game) for game in games]
        for game in games:
            await game.begin()
            await game.come(30)
        for _ in range(60):
            for trouble in troubles:
                await trouble.happens()
            memory, redis = [await game.front(100) for game in games]
            assert memory == redis
            for game in games:
                await game.come(1)
                game.now += game.dice.choice((0, 1, 7)) * SECOND


async def test_looking_at_the_front_changes_nothing(redis_url: str) -> None:
    catalog = Catalog(TIERS, [SERVICES["called in three slots"]])
    async with RedisIndex(catalog, ManualClock(0), redis_url, prefix="{look}:") as other:
        for index in (MemoryIndex(catalog, ManualClock(0)), other):
            game = Play(index, Random(3))
            await game.begin()
            await game.come(20)
            first = await game.front(100)
            before = await index.stats(), await index.models("s", None, 9)
            assert await game.front(100) == first
            assert await game.front(5) == first[:5]
            assert (await index.stats(), await index.models("s", None, 9)) == before


async def test_the_front_says_why(redis_url: str) -> None:
    catalog = Catalog(TIERS, [SERVICES["plain"]])
    async with RedisIndex(catalog, ManualClock(0), redis_url, prefix="{why}:") as other:
        for index in (MemoryIndex(catalog, ManualClock(0)), other):
            game = Play(index, Random(3))
            await game.begin()
            now = game.now / SECOND
            entries = [
                job("paid", at=now, rank=LOW, user="ann", band=Band.SKIP),
                job("retry", at=now, rank=LOW, user="bob", band=Band.FRONT),
                job("aged", at=now - 70, rank=LOW, user="cyd"),
                job("fresh", at=now, rank=MEDIUM, user="dan"),
                job("second", at=now + 1, rank=MEDIUM, user="dan"),
            ]
            await index.put(entries, game.now)
            found = {each.entry.id: each for each in await game.front(5)}
            kinds = {name: each.kind for name, each in found.items()}
            assert kinds == {
                "paid": ShareKind.SKIP,
                "retry": ShareKind.FRONT,
                "aged": ShareKind.AGED,
                "fresh": ShareKind.FRESH,
                "second": ShareKind.FRESH,
            }
            assert found["aged"].level == HIGH
            assert (found["fresh"].in_flow, found["second"].in_flow) == (2, 1)


async def test_activity_is_counted_for_all_processes(redis_url: str) -> None:
    catalog = Catalog(TIERS, [SERVICES["plain"]])
    clock = ManualClock(0)
    period = clock.now() // (15 * SECOND)
    async with (
        RedisIndex(catalog, clock, redis_url, prefix="{act}:") as one,
        RedisIndex(catalog, clock, redis_url, prefix="{act}:") as two,
    ):
        await one.count_activity(period, {"s|high|started": 2})
        await two.count_activity(period, {"s|high|started": 3, "s|low|w7": 1})
        expected = {period: {"s|high|started": 5, "s|low|w7": 1}}
        assert await one.activity(0) == await two.activity(0) == expected
        assert await one.activity(period + 1) == {}
    memory = MemoryIndex(catalog, clock)
    await memory.count_activity(period, {"s|high|started": 2})
    await memory.count_activity(period, {"s|high|started": 3, "s|low|w7": 1})
    assert await memory.activity(0) == expected
    await memory.count_activity(period + 61, {"x|high|started": 1})
    assert [*await memory.activity(0)] == [period + 61], "the oldest period is forgotten"
