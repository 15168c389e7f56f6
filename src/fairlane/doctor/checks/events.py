"""Checks of live updates: events arrive, have no gaps, and listeners get their positions."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.doctor.checks.stores import REDIS_CLI
from fairlane.doctor.facts import EventFacts, Facts, InvariantFacts, LedgerFacts
from fairlane.doctor.findings import Diagnosis, check, fine, warn, wrong
from fairlane.doctor.words import count, lasts
from fairlane.units import SECOND

OUTBOX_LATE_MICROSECONDS = 60 * SECOND
MANY_OUTBOX_ROWS = 1_000
SLOW_POSITIONS = 5


@check(
    "events-late",
    "events",
    (EventFacts,),
    "This process does not hear of changes that other processes make: its pub/sub subscription "
    "gets no answer from Redis. Listeners still see every event, because each process compares "
    "the jobs they listen to with the ledger, but up to a second later.",
    f"`{REDIS_CLI} PUBSUB CHANNELS '*changed:*'` lists the subscriptions while a listener is "
    "connected.",
    f"Check that Redis answers (`{REDIS_CLI} PING`) and that no proxy or ACL in between forbids "
    "SUBSCRIBE.",
    public=True,
)
def events_late(facts: Facts) -> Iterator[Diagnosis]:
    events = facts[EventFacts]
    if events.arrive:
        yield fine(
            f"live updates arrive ({count(events.listeners, 'job')} listened to)", events.listeners
        )
    else:
        text = "pub/sub gets no answer: live updates come up to a second late"
        yield wrong(text, "1 s", "fairlane doctor --only events-late --wait 30", "events")


@check(
    "listeners-slow",
    "events",
    (EventFacts,),
    "So many jobs have listeners at this process that each gets a new position less often than "
    "every five seconds. Events are not delayed.",
    "The finding has the number of jobs with listeners.",
    "Run more API servers, and spread the listeners over them.",
    public=True,
)
def listeners_slow(facts: Facts) -> Iterator[Diagnosis]:
    events = facts[EventFacts]
    every = events.listeners / max(1, events.positions_per_second)
    if every > SLOW_POSITIONS:
        text = (
            f"{count(events.listeners, 'job')} have listeners here, so positions are updated "
            f"every {every:.0f} s"
        )
        yield warn(text, events.listeners, "fairlane doctor --only listeners-slow", "events")


@check(
    "event-gap",
    "events",
    (InvariantFacts,),
    "A job has more or fewer stored events than it was told it has. Listeners that reconnect "
    "may miss one.",
    "`fairlane jobs follow JOB` prints the numbers of the events.",
    "Events are written with the job's state in one transaction, so rows were changed by hand "
    "or by a restored backup. Restore both tables from the same backup.",
)
def event_gap(facts: Facts) -> Iterator[Diagnosis]:
    found = facts[InvariantFacts].counts.event_gaps
    if found:
        text = f"{count(found, 'job')} with a gap in the events"
        yield wrong(text, found, "fairlane doctor --only event-gap", "events")
    else:
        yield fine("no gap in any job's events")


@check(
    "outbox-late",
    "events",
    (LedgerFacts,),
    "Jobs are committed in the ledger and the index has not been told for a minute. They do not "
    "run until then.",
    "`fairlane_outbox_lag_seconds` in `/metrics`; `SELECT count(*) FROM outbox` in the ledger.",
    "Check the index first ([index-ready](#index-ready)). The outbox is published every 5 s as "
    "soon as the index answers; nothing is lost.",
    public=True,
)
def outbox_late(facts: Facts) -> Iterator[Diagnosis]:
    ledger = facts[LedgerFacts]
    command = "fairlane doctor --only outbox-late --wait 60"
    if ledger.outbox_age > OUTBOX_LATE_MICROSECONDS:
        text = (
            f"the index has not been told of {count(ledger.outbox_rows, 'change')} for "
            f"{lasts(ledger.outbox_age)}"
        )
        yield wrong(text, lasts(ledger.outbox_age), command, "queue")
    elif ledger.outbox_rows >= MANY_OUTBOX_ROWS:
        text = f"the index has not been told of at least {count(ledger.outbox_rows, 'change')} yet"
        yield warn(text, ledger.outbox_rows, command, "queue")
    else:
        yield fine("the index knows every committed job", ledger.outbox_rows)


CHECKS = (events_late, listeners_slow, event_gap, outbox_late)
