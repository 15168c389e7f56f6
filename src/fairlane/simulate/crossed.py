"""Jobs that need slots of two pools at once, among jobs that need only one of them: the hardest
case of "all or nothing". The pools of a catalog lie inside one another; these cross."""

from __future__ import annotations

import random

from fairlane.model.catalog import Catalog
from fairlane.model.service import Affinity, Fairness, Pool, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.simulate.question import Question
from fairlane.simulate.workload import SECOND, Arrival, faster, workload

LEFT, RIGHT = Pool("left", 2), Pool("right", 2)
NEEDS = {"left": (LEFT,), "right": (RIGHT,), "both": (LEFT, RIGHT)}
PATIENCE = 300.0
SHARES = {"left": 0.45, "right": 0.45, "both": 0.1}
MEAN = 30.0


class Crossed(Catalog):
    """Services that take from two pools in every combination."""

    def pools(self, service_name: str, region: str | None) -> tuple[Pool, ...]:  # noqa: ARG002
        return NEEDS[service_name]


def crossed(load: float, jobs: int, seed: int) -> Question:
    """Both pools are used to this part by work that comes at random."""
    catalog = Crossed(
        Tiers([Tier("all", {"all": PATIENCE})]),
        [Service(name, affinity=Affinity.NONE, fairness=Fairness.NONE) for name in NEEDS],
    )
    chance = random.Random(seed)
    at = 0.0
    found = []
    for _ in range(jobs):
        at += chance.expovariate(1.0)
        (name,) = chance.choices(list(SHARES), list(SHARES.values()))
        seconds = chance.expovariate(1 / MEAN)
        user = f"u{chance.randrange(50)}"
        times = (max(1, round(seconds * SECOND)),)
        found.append(Arrival(round(at * SECOND), user, 0, name, "", times))
    given = workload("generated", found)
    slots = LEFT.limit + RIGHT.limit
    used = sum(len(NEEDS[each.name]) * each.seconds[0] for each in given.arrivals)
    given = faster(given, load * slots * given.span / used)
    return Question("two pools", catalog, given, slots)
