"""Synthetic workloads from a seed, for users without a trace: many small users and a few large
ones, more users in worse tiers, bursts, and models of very different popularity."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from fairlane.simulate.workload import Arrival, Workload, workload
from fairlane.units import SECOND

TIER_SHARES = (0.01, 0.07, 0.12, 0.20, 0.60)
"""The share of users in each of five tiers. Other numbers of tiers follow the same slope."""


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """Parameters of a generated workload. `spread` is the standard deviation of the logarithm of
    the service time, `burst` the mean number of jobs that a user submits at once, `zipf` the skew
    of users and models."""

    jobs: int = 10_000
    users: int = 200
    models: int = 0
    mean: float = 30.0
    spread: float = 0.8
    burst: float = 3.0
    zipf: float = 1.0
    names: tuple[str, ...] = ("work",)


IMAGES = WorkloadKind(13_861, 2_318, models=87, mean=26.5, spread=0.6, burst=4, names=("image",))
CHAT = WorkloadKind(28_185, 200, mean=4.94, spread=0.9, burst=1.5, names=("llm",))
CLIENTS = WorkloadKind(29_635, 107, models=3, mean=2.86, spread=1.1, burst=2, names=("llm",))


def generate(kind: WorkloadKind, tiers: int, seed: int) -> Workload:
    """The same workload for the same seed. Its span keeps one place busy all the time: scale it to
    the load you want."""
    chance = random.Random(seed)
    ranks = _tiers_of_users(kind.users, tiers, chance)
    popular = [1 / (n + 1) ** kind.zipf for n in range(kind.users)]
    wanted = [1 / (n + 1) ** (kind.zipf + 0.2) for n in range(kind.models)]
    mu = -(kind.spread**2) / 2
    span = kind.jobs * kind.mean
    found: list[Arrival] = []
    while len(found) < kind.jobs:
        user = chance.choices(range(kind.users), popular)[0]
        model = f"m{chance.choices(range(kind.models), wanted)[0]}" if kind.models else ""
        at = chance.random() * span
        name = chance.choice(kind.names)
        for _ in range(min(_burst(kind.burst, chance), kind.jobs - len(found))):
            seconds = kind.mean * chance.lognormvariate(mu, kind.spread)
            found.append(
                Arrival(
                    round(at * SECOND),
                    f"u{user}",
                    ranks[user],
                    name,
                    model,
                    (max(1000, round(seconds * SECOND)),),
                )
            )
            at += chance.expovariate(1.0)
    return workload("generated", found)


def _burst(mean: float, chance: random.Random) -> int:
    return 1 + int(chance.expovariate(1 / (mean - 1))) if mean > 1 else 1


def _tiers_of_users(users: int, tiers: int, chance: random.Random) -> Sequence[int]:
    """At least one user in every tier."""
    shares = TIER_SHARES if tiers == len(TIER_SHARES) else tuple(2.0**n for n in range(tiers))
    ranks = [
        n % tiers if n < tiers else chance.choices(range(tiers), shares)[0] for n in range(users)
    ]
    chance.shuffle(ranks)
    return ranks
