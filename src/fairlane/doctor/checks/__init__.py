"""The table of checks. A check is a pure function over facts."""

from fairlane.doctor.checks import access, events, limits, services, stores, tiers, workers
from fairlane.doctor.facts import DriftFacts, FrontFacts, InvariantFacts, RetentionFacts
from fairlane.doctor.findings import Check

CHECKS: tuple[Check, ...] = (
    *stores.CHECKS,
    *services.CHECKS,
    *limits.CHECKS,
    *tiers.CHECKS,
    *workers.CHECKS,
    *events.CHECKS,
    *access.CHECKS,
)
"""The checks of a running system, in the order in which they are shown: the stores first, because a
store that fails is the cause of other findings."""

BEFORE_SERVING: tuple[Check, ...] = (
    *access.BEFORE_SERVING,
    stores.ledger_read_only,
    stores.schema,
    stores.postgres_durability,
    stores.postgres_connections,
    stores.redis_eviction,
    stores.redis_writes,
    stores.redis_memory,
    stores.disk_space,
    stores.clock_skew,
    access.keys_missing,
    access.keys_expiring,
)

EXPENSIVE = (DriftFacts, InvariantFacts, FrontFacts, RetentionFacts)
"""Fact groups whose cost grows with the number of jobs, or that take several reads."""

QUICK: tuple[Check, ...] = tuple(
    each for each in CHECKS if not set(each.needs).intersection(EXPENSIVE)
)
"""The checks that the dashboard runs every few seconds."""

EVERY: tuple[Check, ...] = (*CHECKS, *access.BEFORE_SERVING)


def by_name() -> dict[str, Check]:
    return {each.name: each for each in EVERY}
