"""A workload in which jobs need slots of two crossing pools at once."""

from __future__ import annotations

import random

from fairlane.model.catalog import Catalog
from fairlane.model.service import Affinity, Fairness, Pool, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.simulate.scenario import Scenario
from fairlane.simulate.workload import Arrival, faster, workload
from fairlane.units import SECOND

LEFT, RIGHT = Pool("left", 2), Pool("right", 2)
NEEDS = {"left": (LEFT,), "right": (RIGHT,), "both": (LEFT, RIGHT)}
PATIENCE_SECONDS = 300.0
SHARES = {"left": 0.45, "right": 0.45, "both": 0.1}
MEAN_SECONDS = 30.0


class Crossed(Catalog):
    """Services that need slots in two pools, in every combination."""

    def pools(self, service_name: str, region: str | None) -> tuple[Pool, ...]:  # noqa: ARG002
        return NEEDS[service_name]


def crossed(load: float, jobs: int, seed: int) -> Scenario:
    """Random arrivals that use both pools to this utilisation."""
    catalog = Crossed(
        Tiers([Tier("all", {"all": PATIENCE_SECONDS})]),
        [Service(name, affinity=Affinity.NONE, fairness=Fairness.NONE) for name in NEEDS],
    )
    chance = random.Random(seed)
    at = 0.0
    found = []
    for _ in range(jobs):
        at += chance.expovariate(1.0)
        (name,) = chance.choices(list(SHARES), list(SHARES.values()))
        seconds = chance.expovariate(1 / MEAN_SECONDS)
        user = f"u{chance.randrange(50)}"
        times = (max(1, round(seconds * SECOND)),)
        found.append(Arrival(round(at * SECOND), user, 0, name, "", times))
    given = workload("generated", found)
    slots = LEFT.limit + RIGHT.limit
    used = sum(len(NEEDS[each.name]) * each.seconds[0] for each in given.arrivals)
    given = faster(given, load * slots * given.span / used)
    return Scenario("two pools", catalog, given, slots)
