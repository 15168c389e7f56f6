"""Random worlds to compare two ways of serving in."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count

from fairlane.index.index import Proposal
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry
from fairlane.model.service import (
    Affinity,
    Executor,
    Fairness,
    Provider,
    Region,
    Service,
    Shares,
)
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Loaded, Worker
from fairlane.units import SECOND
from tests.unit.driver import TIERS, Driver, job

PATIENT = Tiers([Tier("high"), Tier("medium", {"high": 9000}), Tier("low", {"high": 9000})])
"""Tiers in which fairness decides, not age."""

CAPS = {"c1": 1, "c2": 2}


class Fuzz:
    """One random world: settings, workers and a mix of events, all from one seed. A failing test
    names its seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.catalog = self.settings()
        self.driver = Driver(self.catalog, start=1000)
        self.workers = [self.worker(n) for n in range(4)]
        self.loaded = {worker.id: Loaded() for worker in self.workers}
        self.waiting: dict[str, Entry] = {}
        self.numbers = count(1)

    def settings(self) -> Catalog:
        dice = self.dice
        shares = [Shares(), Shares(1000, 1000, 1000), Shares(300, 500, 100)]
        regions = {name: Region(name, dice.choice([0, 1, 2])) for name in ("eu", "us")}
        services = [
            Service(
                name,
                limit=dice.choice([0, 1, 2, 3, 8]),
                rate=dice.choice([0, 0, 0, 6]),
                provider=dice.choice([None, "p"]),
                regions=dice.choice([{}, regions]),
                fairness=dice.choice([*Fairness]),
                affinity=dice.choice([*Affinity]),
                batch_size=dice.choice([1, 3]),
                shares=dice.choice(shares),
                paused=dice.random() < 0.05,
            )
            for name in ("a", "b", "c")
        ]
        tiers = dice.choice([TIERS, PATIENT])
        return Catalog(tiers, services, [Provider("p", limit=dice.choice([1, 2, 4]))])

    def worker(self, n: int) -> Worker:
        dice = self.dice
        return Worker(
            f"w{n}",
            services=dice.choice([None, None, frozenset("ab"), frozenset("c")]),
            region=dice.choice([None, "eu", "us"]),
            regions=dice.choice([(), (), ("us", "eu")]),
            capabilities=dice.choice([frozenset(), frozenset({"gpu"})]),
            tiers=dice.choice([None, None, None, frozenset({"high", "low"})]),
        )

    def entry(self) -> Entry:
        dice = self.dice
        now = self.driver.now / SECOND
        user = dice.choice(["x", "y", "z", "x", "y", "z", "c1", "c2"])
        return job(
            f"j{next(self.numbers)}",
            at=now - dice.choice([0, 0, 0, dice.uniform(0, 150)]),
            service=dice.choice("abc"),
            rank=dice.randrange(3),
            user=user,
            model=dice.choice(["", "m1", "m2"]),
            cost=dice.choice([0.5, 1, 2, 3, 100]),
            cap=CAPS.get(user, 0),
            band=dice.choice([Band.SKIP, Band.FRONT, *[Band.TIER] * 6]),
            ready_at=dice.choice([0, 0, 0, now + dice.uniform(0, 60)]),
            regions=dice.choice([(), (), ("eu",), ("eu", "us")]),
            capabilities=dice.choice([(), (), ("gpu",)]),
        )

    def arrive(self) -> Entry:
        entry = self.entry()
        self.waiting[entry.id] = entry
        self.driver.put(entry)
        return entry

    def cancel(self, name: str) -> Entry:
        entry = self.waiting.pop(name)
        self.driver.take(entry)
        return entry

    def claim(self, n: int, worker: Worker, loaded: Loaded) -> list[Proposal]:
        picked = self.driver.claim(n, worker, loaded)
        for each in picked:
            del self.waiting[each.entry.id]
        return picked


class Models(Fuzz):
    """Many users of many models, loaded often: some models are wanted more than others."""

    def settings(self) -> Catalog:
        dice = self.dice
        services = [
            Service(
                name,
                limit=dice.choice([0, 0, 1, 6]),
                fairness=dice.choice([Fairness.USER, Fairness.USER, Fairness.NONE]),
                affinity=dice.choice([Affinity.RESIDENCY, Affinity.RESIDENCY, Affinity.BATCH]),
            )
            for name in ("a", "b", "c")
        ]
        return Catalog(dice.choice([TIERS, PATIENT]), services)

    def entry(self) -> Entry:
        dice, number = self.dice, min(self.dice.randrange(6), self.dice.randrange(6))
        entry = super().entry()
        self.loaded[dice.choice(self.workers).id] = Loaded()  # that one has been started anew
        return entry._replace(
            lane=dice.choice([entry.lane, "a||", "a||"]),
            band=dice.choice([entry.band, *[Band.TIER] * 4]),
            rank=dice.choice([1, 1, 1, 1, 2, 0]),
            score=self.driver.now,
            ready_at=dice.choice([0, 0, 0, 0, entry.ready_at]),
            user=entry.user if entry.cap else f"u{dice.randrange(30)}",
            model=dice.choice(["", *[f"m{number}"] * 6]),
            cost=dice.choice([1, 1, 2, 2, 100]) * SECOND,
        )


class CalledModels(Models):
    """Called services with a few slots, some of them by region."""

    def settings(self) -> Catalog:
        return called(super().settings(), self.dice)


def called(catalog: Catalog, dice: random.Random) -> Catalog:
    """The same services, most of them called, with other limits."""
    services = [
        replace(
            each,
            executor=dice.choice([Executor.HTTP, Executor.HTTP, Executor.HTTP, Executor.PULL]),
            limit=dice.choice([0, 1, 2, 3, 6, 300]),
            regions=dice.choice([{}, {"eu": Region("eu", dice.choice([0, 1, 3]))}]),
        )
        for each in catalog.services.values()
    ]
    return Catalog(catalog.tiers, services, catalog.providers.values())
