"""What a process was doing when it died, as data: calls that prepare, and calls under failpoints.

Jobs are known by their tag; a cell of a fan-out by its tag and its letter."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlane.clock import seconds
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.model.quality_check import QualityCheck
from fairlane.model.service import Overrun, Provider, Service
from fairlane.model.tier import Tier, Tiers

LONG = "x" * 5_000
"""Longer than what stands in the job's own row."""


def settings() -> Catalog:
    return Catalog(
        Tiers(
            [Tier("high", timeout=60), Tier("low", {"high": 30}, max_running_per_user=2)],
            default="high",
        ),
        [
            Service("free"),
            Service("once", max_attempts=1),
            Service("one", limit=1, overrun=Overrun.STRICT),
            Service("two", limit=2, provider="shared"),
            Service("draw", limit=1, max_attempts=4, quality_check=QualityCheck("judge")),
            Service("judge", limit=1),
        ],
        [Provider("shared", limit=2)],
        {"chain": ("two", "free")},
    )


REQUESTS = {
    job.tags[0]: job
    for job in (
        NewJob("free", tags=("plain",), user="ann"),
        NewJob("free", tags=("other",), user="bob", tier="low"),
        NewJob("free", tags=("later",), user="bob", tier="low"),
        NewJob("free", tags=("long",), input={"text": LONG}),
        NewJob("free", tags=("keyed",), idempotency_key="key-1"),
        NewJob("chain", tags=("chain",), user="ann", idempotency_key="key-2"),
        NewJob("two", tags=("fan",), matrix={"n": ("a", "b")}, idempotency_key="key-3"),
        NewJob("one", tags=("first",), user="ann"),
        NewJob("one", tags=("second",), user="ann"),
        NewJob("two", tags=("third",)),
        NewJob("once", tags=("doomed",)),
        NewJob("free", tags=("paid",), user="ann", duration=20),
        NewJob("free", tags=("dear",), user="ann", duration=40),
        NewJob("draw", tags=("checked",), user="ann", duration=20),
        NewJob("free", tags=("hasty",), user="ann", max_wait=seconds(10)),
    )
}
CREDITS = 10


class Call(NamedTuple):
    verb: str
    args: dict[str, Any]


def call(verb: str, **args: Any) -> Call:
    return Call(verb, args)


def submit(*tags: str) -> Call:
    return call("submit", tags=tags)


def claim(n: int = 9, worker: str = "w", services: tuple[str, ...] | None = None) -> Call:
    return call("claim", n=n, worker=worker, services=services)


def settle(**how: str) -> Call:
    """`settle(chain="done", fan_a="transient")`: each job's own report, in one batch."""
    return call("settle", reports=[(job.replace("_", "/"), way) for job, way in how.items()])


class Scenario(NamedTuple):
    prepare: tuple[Call, ...]
    act: tuple[Call, ...]


SCENARIOS = {
    "submit": Scenario(
        (submit("other"),),
        (
            submit("plain", "long", "keyed", "chain"),
            submit("fan"),
            submit("keyed", "chain"),
            submit("paid"),
            call("skip", job="paid"),
        ),
    ),
    "claim": Scenario(
        (submit("first", "second", "third", "chain", "fan", "other", "long"),),
        (
            call("forge", job="second"),
            claim(2, "v"),
            claim(),
            claim(),
            settle(first="done"),
            claim(),
        ),
    ),
    "settle": Scenario(
        (
            submit("plain", "first", "doomed", "paid", "fan"),
            call("skip", job="paid"),
            claim(),
            settle(fan_a="done"),
            submit("chain", "other", "hasty"),
            claim(),
            call("cancel", job="hasty"),
        ),
        (
            settle(plain="done", chain="done", first="open", doomed="transient", other="back"),
            settle(paid="invalid_input", hasty="done"),
            settle(fan_b="done"),
            settle(plain="done", fan_b="done"),
            claim(),
            settle(chain="done", other="unavailable"),
        ),
    ),
    "quality": Scenario(
        (submit("checked"), call("skip", job="checked"), claim()),
        (
            settle(checked="done"),
            claim(),
            settle(checked="quality"),
            claim(),
            settle(checked="done"),
            claim(),
            settle(checked="done"),
        ),
    ),
    "moves": Scenario(
        (
            submit("doomed", "paid", "plain", "chain"),
            call("skip", job="paid"),
            claim(),
            settle(doomed="transient", paid="invalid_input", plain="service_error", chain="done"),
            submit("first", "fan", "third", "hasty", "dear"),
            claim(services=("one", "two")),
            call("skip", job="dear"),
            call("advance", seconds=11),
            call("sweep"),
        ),
        (
            call("skip", job="chain"),
            call("cancel", job="dear"),
            call("cancel", job="first"),
            call("cancel", job="fan"),
            call("resume", job="hasty"),
            call("replay", job="doomed"),
        ),
    ),
    "sweep": Scenario(
        (
            call("advance", seconds=20),
            submit("plain", "first", "third", "other", "doomed"),
            claim(),
            submit("chain", "fan", "hasty", "second", "later"),
            call("cancel", job="third"),
        ),
        (
            call("propose", n=1),
            call("advance", seconds=40),
            call("sweep"),
            call("advance", seconds=30),
            *[call("sweep")] * 4,
        ),
    ),
    "rebuild": Scenario(
        (
            submit("first", "second", "chain", "fan", "other", "plain"),
            claim(3),
            call("cancel", job="first"),
        ),
        (call("rebuild"), claim(), settle(chain="done"), call("rebuild"), claim()),
    ),
    "start": Scenario(
        (
            submit("first", "second", "chain", "fan"),
            claim(2),
            call("limit", service="two", limit=1),
        ),
        (submit("plain", "keyed"), call("restart"), submit("keyed"), claim()),
    ),
}

WAYS = {fault.value: fault for fault in Fault} | {"open": Fault.TRANSIENT}
"""How a report can say that the step failed; after "open" the call may still be running."""
