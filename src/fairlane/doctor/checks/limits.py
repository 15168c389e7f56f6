"""Checks of concurrency limits: no slot above its limit, no slot without a job."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.doctor.facts import DriftFacts, Facts, InvariantFacts
from fairlane.doctor.findings import Diagnosis, check, fine, wrong
from fairlane.doctor.words import count


@check(
    "over-limit",
    "queue",
    (InvariantFacts,),
    "More slots are taken than the limit allows. A trigger of the database prevents this, so "
    "either the trigger is gone or the rows were changed by hand. Jobs that were already "
    "running when a limit was lowered do not count.",
    "`SELECT * FROM slots JOIN pools ON pools.name = slots.pool WHERE n > size` in the ledger.",
    "Pause the service, `fairlane services pause NAME`, let its jobs end, and restore the "
    "schema from a backup or with `fairlane migrate`. Then find out what wrote to the database.",
)
def over_limit(facts: Facts) -> Iterator[Diagnosis]:
    found = facts[InvariantFacts].counts.over_limit
    if found:
        yield wrong(
            f"{count(found, 'slot')} above the limit", found, "fairlane services list", "queue"
        )
    else:
        yield fine("no slot above its limit")


@check(
    "orphan-slot",
    "queue",
    (InvariantFacts,),
    "A slot is taken in the ledger and no running job holds it. It reduces the capacity of its "
    "service.",
    "`fairlane doctor --only orphan-slot` again after a minute: maintenance frees such slots by "
    "itself.",
    "If it stays, maintenance does not run: see [maintenance-late](#maintenance-late).",
)
def orphan_slot(facts: Facts) -> Iterator[Diagnosis]:
    found = facts[InvariantFacts].counts.orphan_slots
    if found:
        text = f"{count(found, 'slot')} taken by no running job"
        yield wrong(text, found, "fairlane doctor --only orphan-slot --wait 60", "queue")
    else:
        yield fine("every taken slot belongs to a running job")


@check(
    "slot-count",
    "queue",
    (DriftFacts,),
    "The index counts other taken slots than the ledger. If it counts more, the service runs "
    "below its limit. If it counts fewer, claims are proposed that the ledger refuses; the "
    "limit still holds.",
    "The finding names the pool and both counts. The reconciler corrects the index every 30 s.",
    "`fairlane doctor --only slot-count --wait 60`. If it comes back, check that every process "
    "uses the same Redis (`REDIS_URL`) and that no other program writes to it.",
)
def slot_count(facts: Facts) -> Iterator[Diagnosis]:
    for pool in facts[DriftFacts].pools:
        name = pool.pool.partition(":")[2]
        text = (
            f"{name}: the index counts {count(pool.in_index, 'slot')}, the ledger {pool.in_ledger}"
        )
        command = "fairlane doctor --only slot-count --wait 60"
        yield wrong(text, pool.in_index - pool.in_ledger, command, name.partition("@")[0])
    if not facts[DriftFacts].pools:
        yield fine("ledger and index count the same slots")


CHECKS = (over_limit, orphan_slot, slot_count)
