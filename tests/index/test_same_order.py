"""The index in Redis does what the index in memory does."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from fairlane.index.index import Freed, HeldEntry, ModelSample, ServiceCallRef
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band
from fairlane.model.lease import Slot
from fairlane.model.queue_entry import Entry, Start
from fairlane.model.service import Affinity, Fairness, Provider, Service
from fairlane.model.step import service_of
from fairlane.model.worker import Worker
from fairlane.units import SECOND
from tests.index.pair import Pair
from tests.unit.driver import COLD, HIGH, LOW, WORKER, job, plain, world
from tests.unit.fuzz import CalledModels, Fuzz, Models, called

THOROUGH = os.environ.get("FAIRLANE_THOROUGH") == "1"
SEEDS = 150 if THOROUGH else 10
STEPS = 700 if THOROUGH else 300
SERVICES = ["a", "b", "c"]


BANDS = [Band.SKIP, Band.FRONT, *[Band.TIER] * 4]


def unlimited(catalog: Catalog) -> Catalog:
    """Where slots are no matter, shares and fairness decide."""
    services = [
        replace(each, limit=0, rate=0, provider=None, regions={}, paused=False)
        for each in catalog.services.values()
    ]
    return Catalog(catalog.tiers, services, catalog.providers.values())


class Life:
    """A random life of both indexes, from one seed. Every other one is about slots, the rest are
    about shares."""

    world: type[Fuzz] = Fuzz

    def __init__(self, seed: int, url: str) -> None:
        self.fuzz = self.world(seed)
        self.dice = self.fuzz.dice
        self.is_open = seed % 2 == 1
        if self.is_open:
            self.fuzz.driver.configure(unlimited(self.fuzz.catalog))
        self.pair = Pair(self.fuzz.driver.index, url, f"{{fuzz{seed}}}:")
        self.epoch = "e"
        self.claims = self.served = self.claimed = 0

    @property
    def now(self) -> int:
        return self.fuzz.driver.now

    async def live(self, steps: int) -> int:
        async with self.pair:
            await self.pair.other.begin("e")
            assert await self.pair.other.open("e", self.now)
            acts = [
                (25, self.arrive), (3, self.cancel), (25, self.end), (9, self.pass_time),
                (35, self.claim), (2, self.retry), (1, self.correct_entry), (1, self.announce),
                (1.5, self.fail_service), (3, self.answer), (1, self.learn), (1, self.leave),
                (1, self.verify), (1, self.sync), (0.5, self.settings), (0.5, self.rebuild),
                (0.5, self.cleanup), (0.5, self.end_waits), (1, self.hear_late),
            ]  # fmt: skip
            for step in range(steps):
                (act,) = self.dice.choices([act for _, act in acts], [weight for weight, _ in acts])
                await act()
                if step % 3 == 0:
                    await self.pair.compare_counts()
                if step % 50 == 49:
                    await self.pair.compare_all(SERVICES, self.now, self.dice)
        return self.claimed

    # --- what waits --------------------------------------------------------------------------
    async def arrive(self) -> None:
        several = [2, 3, 5] if self.is_open else [1, 1, 3]
        entries = [self.entry() for _ in range(self.dice.choice(several))]
        if self.dice.random() < 0.2:  # the same again, or changed since
            again = self.entry()._replace(id=entries[0].id)
            newer = again._replace(rev=entries[0].rev + self.dice.choice([0, 1]))
            entries.append(self.dice.choice([entries[0], newer]))
        await self.pair.do("put", entries, self.now)

    async def cancel(self) -> None:
        waiting = [*self.pair.memory.waiting.values()]
        if waiting:
            entry = self.dice.choice(waiting)
            await self.pair.do("take", [(entry.id, entry.rev - self.dice.choice([0, 0, 0, 1]))])

    async def retry(self) -> None:
        """A waiting job under another rev, in another band."""
        waiting = [*self.pair.memory.waiting.values()]
        if waiting:
            await self.pair.do("put", [self.changed(self.dice.choice(waiting))], self.now)

    async def hear_late(self) -> None:
        """Messages that were on their way for long: of jobs that have started, or changed since."""
        memory = self.pair.memory
        known = [*memory.waiting.values(), *[held.entry for held in memory.held.values()]]
        for entry in self.dice.sample(known, min(len(known), 3)):
            other = self.entry()
            late = other._replace(id=entry.id, rev=entry.rev - self.dice.choice([0, 0, 1]))
            await self.pair.do("put", [late], self.now)

    async def correct_entry(self) -> None:
        waiting = [*self.pair.memory.waiting.values()]
        if waiting:
            seen = self.dice.choice(waiting)
            truth = self.dice.choice([None, self.changed(seen), seen])
            await self.pair.do("correct_entry", seen, truth, self.now)

    async def announce(self) -> None:
        await self.pair.do("announced", await self.pair.promotable(self.now))

    def entry(self) -> Entry:
        entry, dice = self.fuzz.entry(), self.dice
        if not self.is_open:
            return entry
        lane = dice.choice([entry.lane, *["a||", "b||"] * 3])
        return entry._replace(band=dice.choice(BANDS), lane=lane, rank=dice.choice([0, 1, 1, 2]))

    def changed(self, entry: Entry) -> Entry:
        """The job once more: at its place, or somewhere else."""
        if self.dice.random() < 0.5:
            return entry._replace(rev=entry.rev + 1)
        other = self.entry()
        return other._replace(id=entry.id, rev=entry.rev + 1, user=entry.user, cap=entry.cap)

    # --- handing out -------------------------------------------------------------------------
    async def claim(self) -> None:
        workers = self.dice.sample(self.fuzz.workers, self.dice.choice([1, 1, 3, 4]))
        if self.dice.random() < 0.5:  # of one kind, so that one goes on where another has stopped
            workers = [replace(workers[0], id=worker.id) for worker in workers]
        loaded = self.fuzz.loaded
        asking = [(worker, loaded[worker.id], self.how_many()) for worker in workers]
        answers = await self.pair.claim(asking, self.now, self.epoch)
        for worker, picks in zip(workers, answers, strict=True):
            for each in picks.proposals:
                loaded[worker.id] = loaded[worker.id].after(each.entry.model, self.now)
            self.claims += 1
            self.served += bool(picks.proposals)
            self.claimed += len(picks.proposals)

    def how_many(self) -> int:
        return self.dice.choice([1, 1, 2, 5])

    async def end(self) -> None:
        held = [*self.pair.memory.held.values()]
        for each in self.dice.sample(held, min(len(held), self.dice.choice([1, 2, 4]))):
            await self.end_one(each)

    async def end_one(self, each: HeldEntry) -> None:
        fate = self.dice.random()
        if fate < 0.15:
            await self.pair.do("drop", [each.token], self.now)
        else:
            actual = self.dice.choice([None, each.entry.cost * self.dice.choice([1, 2, 12]) // 2])
            kept = tuple(slot for slot in each.slots if self.dice.random() < 0.05)
            answered = self.dice.choice(
                [None, self.call()[:2], (service_of(each.entry.lane), None)]
            )
            freed = [Freed(each.token, actual, kept, answered)] * self.dice.choice([1, 1, 2])
            await self.pair.do("free", freed, self.now)
        if 0.1 < fate < 0.4:
            await self.pair.do("put", [self.changed(each.entry)], self.now)

    async def verify(self) -> None:
        tokens = [token for token in self.pair.memory.held if self.dice.random() < 0.5]
        await self.pair.do("verified", [*tokens, "nobody"], self.now)

    async def leave(self) -> None:
        await self.pair.do("leave", self.dice.choice(self.fuzz.workers).id)

    async def end_waits(self) -> None:
        await self.pair.do("end_waits", self.dice.choice(self.fuzz.workers).id)

    async def pass_time(self) -> None:
        self.fuzz.driver.pass_time(self.dice.choice([0.1, 1, 10, 30]))

    # --- services ----------------------------------------------------------------------------
    def call(self) -> ServiceCallRef:
        held = [*self.pair.memory.held]
        region = self.dice.choice([None, "eu", "us"])
        return ServiceCallRef(
            self.dice.choice(SERVICES), region, self.dice.choice([*held, "nobody"])
        )

    async def fail_service(self) -> None:
        job = f"j{self.dice.randrange(4)}"
        wait = self.dice.choice([0, 0, 7 * SECOND])
        await self.pair.do("unavailable", self.call(), job, self.now, wait)

    async def answer(self) -> None:
        breakers = (await self.pair.memory.stats()).breakers
        probes = [(key, gate.probe) for key, gate in breakers.items() if gate.probe]
        if probes and self.dice.random() < 0.7:
            key, token = self.dice.choice(probes)
            service, _, region = key.partition("@")
            await self.pair.do("breaker", service, region or None)
            answered = (service, region or None)
            await self.pair.do("free", [Freed(token, None, (), answered)], self.now)
        call = self.call()
        await self.pair.do("breaker", call.service, call.region)
        freed = Freed(call.token, None, (), (call.service, call.region))
        await self.pair.do("free", [freed], self.now)

    async def learn(self) -> None:
        service, model = self.dice.choice(SERVICES), self.dice.choice(["", "m1", "m2"])
        load, work = (self.dice.choice([None, self.dice.randrange(20 * SECOND)]) for _ in range(2))
        tenant = self.dice.choice([None, "shop", "rival"])
        await self.pair.do("learn_times", [ModelSample(service, model, load, work, tenant)])

    async def sync(self) -> None:
        pools = [pool for pool in self.pair.memory.pools if pool.held]
        if pools:
            pool = self.dice.choice(pools)
            rows = [(Slot(pool.name, n), token) for n, token in pool.held.items()]
            rows = [row for row in rows if self.dice.random() < 0.8]
            if self.dice.random() < 0.3:
                rows.append((Slot(pool.name, self.dice.randrange(1, 6)), "stranger"))
            await self.pair.do("sync_slots", pool.name, rows, self.now)

    async def settings(self) -> None:
        dice, old = self.dice, self.pair.memory.catalog
        services = [
            replace(
                each,
                limit=0 if self.is_open else dice.choice([each.limit, 1, 4]),
                paused=dice.random() < 0.1 and not self.is_open,
                fairness=dice.choice([each.fairness, *Fairness]),
                affinity=dice.choice([each.affinity, *Affinity]),
            )
            for each in old.services.values()
        ]
        catalog = Catalog(old.tiers, services, old.providers.values())
        await self.pair.do("configure", catalog, 0)

    async def cleanup(self) -> None:
        self.fuzz.driver.pass_time(self.dice.choice([0, 100]))
        await self.pair.do("cleanup", self.now)

    # --- rebuild -----------------------------------------------------------------------------
    async def rebuild(self) -> None:
        dice, pair, memory = self.dice, self.pair, self.pair.memory
        waiting = [*memory.waiting.values()]
        held = [HeldEntry(each.token, each.entry, (), each.at) for each in memory.held.values()]
        rows = [
            (Slot(pool.name, n, self.now + 9 * SECOND if pool.window else 0), token)
            for pool in memory.pools
            for n, token in pool.held.items()
        ]
        self.epoch += "+"
        await pair.do("begin", self.epoch)
        await self.arrive()
        if waiting:
            gone = dice.choice(waiting)
            await pair.do("take", [(gone.id, gone.rev)])
            await pair.do("put", [self.changed(dice.choice(waiting))], self.now)
        if held:
            await pair.do("free", [Freed(dice.choice(held).token, 1)], self.now)
        starts = [
            Start(dice.choice([*SERVICES, "x"]), rank, user, self.now - age, f"j{age}")
            for rank in range(3)
            for user in "xyx"
            for age in [dice.randrange(99 * SECOND)]
        ]
        await pair.do("load_starts", self.epoch, starts)
        await pair.do("load_slots", self.epoch, rows)
        middle = len(waiting) // 2
        await pair.do("load", self.epoch, waiting[:middle], held)
        await self.cancel()
        await pair.do("load", self.epoch, waiting[middle:], [])
        await pair.do("open", f"{self.epoch}?", self.now)
        await pair.do("open", self.epoch, self.now)


class Crowd(Life):
    """Many users and large claims: more than anybody looks at in one go."""

    async def arrive(self) -> None:
        users = 6 if self.dice.random() < 0.3 else 90
        entries = [self.one_of(users) for _ in range(self.dice.choice([1, 20, 60]))]
        await self.pair.do("put", entries, self.now)

    def one_of(self, users: int) -> Entry:
        entry = self.entry()
        kept = entry.cap or self.dice.random() < 0.1
        user = entry.user if kept else f"user-{self.dice.randrange(users)}"
        return entry._replace(user=user, lane="a||" if self.dice.random() < 0.5 else entry.lane)

    def how_many(self) -> int:
        return self.dice.choice([1, 7, 30, 70])

    async def end(self) -> None:
        held = [*self.pair.memory.held.values()]
        ended = self.dice.sample(held, len(held) * self.dice.choice([1, 2, 3]) // 3)
        costs = [each.entry.cost * self.dice.choice([0, 1, 2, 5]) // 2 for each in ended]
        freed = [Freed(each.token, cost) for each, cost in zip(ended, costs, strict=True)]
        await self.pair.do("free", freed, self.now)


class ManyModels(Life):
    world = Models

    def entry(self) -> Entry:
        return self.fuzz.entry()


class CalledServices(Life):
    """Services that are called, with few slots, each of which remembers its model."""

    world = CalledModels

    def __init__(self, seed: int, url: str) -> None:
        super().__init__(2 * seed, url)

    def entry(self) -> Entry:
        return self.fuzz.entry()

    async def settings(self) -> None:
        await super().settings()
        if self.dice.random() < 0.5:  # the most specific pool is another one
            catalog = called(self.pair.memory.catalog, self.dice)
            await self.pair.do("configure", catalog, 0)

    async def end(self) -> None:
        await super().end()
        for service in SERVICES:
            await self.pair.do("models", service, None, 9)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_both_hand_out_the_same_jobs(seed: int, redis_url: str) -> None:
    await Life(seed, redis_url).live(STEPS)


@pytest.mark.parametrize("seed", range(2000, 2000 + SEEDS // 3))
async def test_both_hand_out_the_same_jobs_to_a_crowd(seed: int, redis_url: str) -> None:
    await Crowd(seed, redis_url).live(STEPS // 4)


@pytest.mark.parametrize("seed", range(3000, 3000 + SEEDS // 2))
async def test_both_load_the_same_models(seed: int, redis_url: str) -> None:
    await ManyModels(seed, redis_url).live(STEPS)


@pytest.mark.parametrize("seed", range(4000, 4000 + SEEDS))
async def test_both_choose_the_same_slots_of_called_services(seed: int, redis_url: str) -> None:
    await CalledServices(seed, redis_url).live(STEPS)


async def test_both_keep_the_last_slot_for_whom_it_is_reserved(redis_url: str) -> None:
    """Random lives are rarely patient enough."""
    wide, thin = plain("wide", limit=1, provider="p"), plain("thin", provider="p")
    memory = world(wide, thin, providers=[Provider("p", limit=2)]).index
    old = job("old", service="wide", rank=LOW, user="w")
    others = [job(f"t{n}", service="thin", at=239, user=f"t{n}") for n in range(9)]
    only = {name: Worker(name, services=frozenset({name})) for name in ("wide", "thin")}
    now = 240 * SECOND  # four times its patience

    async with Pair(memory, redis_url, "{reserved}:") as pair:

        async def names(service: str, n: int) -> list[str]:
            (picks,) = await pair.claim([(only[service], COLD, n)], now, "e")
            return [each.entry.id for each in picks.proposals]

        await pair.other.begin("e")
        assert await pair.other.open("e", now)
        await pair.do("put", [old, *others], now)
        assert len(await names("thin", 2)) == 2
        assert await names("wide", 1) == []  # it reserves
        await pair.do("free", [Freed(next(iter(memory.held)), 1)], now)
        assert await names("thin", 1) == []
        assert await names("wide", 1) == ["old"]


async def test_both_save_up_no_more_than_four_jumps(redis_url: str) -> None:
    """Aged work that has gone before others once, and then was not there for long."""
    memory, now = world(plain()).index, 100 * SECOND
    async with Pair(memory, redis_url, "{saved}:") as pair:
        await pair.other.begin("e")
        assert await pair.other.open("e", now)

        async def serve(aged: int, fresh: int) -> list[int]:
            old = [job(f"a{n}", rank=LOW, user=f"a{n}", rev=now) for n in range(aged)]
            new = [job(f"h{n}", rank=HIGH, at=99, user=f"h{n}", rev=now) for n in range(fresh)]
            await pair.do("put", [*old, *new], now)
            (picks,) = await pair.claim([(WORKER, COLD, aged + fresh)], now, "e")
            await pair.do("free", [Freed(each.token, 1) for each in picks.proposals], now)
            return [each.entry.rank for each in picks.proposals]

        assert await serve(1, 1) == [LOW, HIGH]
        await serve(0, 40)
        ranks = await serve(12, 12)
    assert ranks[:5] == [LOW] * 4 + [HIGH]


async def test_both_compare_as_many_models_and_no_more(redis_url: str) -> None:
    memory, now = world(Service("s")).index, 500 * SECOND
    async with Pair(memory, redis_url, "{models}:") as pair:
        await pair.other.begin("e")
        assert await pair.other.open("e", now)
        crowd = [job(f"c{n}", at=500, model="c", user=f"c{n}") for n in range(9)]
        alone = [job(f"a{n}", at=500, model=f"m{n}", user=f"a{n}") for n in range(400)]
        for some, first in ((alone[:255], "c0"), (alone[255:], "a0")):
            await pair.do("put", [*some, *crowd], now)
            (picks,) = await pair.claim([(WORKER, COLD, 1)], now, "e")
            assert [each.entry.id for each in picks.proposals] == [first]


async def test_the_lives_hand_out_enough_to_mean_something(redis_url: str) -> None:
    claims = [await Life(seed, redis_url).live(150) for seed in range(1000, 1003)]
    assert sum(claims) > 60
    assert await Crowd(1007, redis_url).live(75) > 150
