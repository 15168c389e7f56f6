"""The plan of a run, made from its seed: what each client does, and which faults happen when. What
a client aims at (one of its own jobs) is a share, so that it fits however many it has by then."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

USERS = 8
LEASE_SECONDS = 4.0
CALL_TIMEOUT_SECONDS = 15.0
RECOVERY_SECONDS = 20.0
"""Seconds in which the cluster accepts work again after a fault, on a busy machine."""

SERVICES: dict[str, dict[str, Any]] = {
    "image": {"limit": 2, "overrun": "strict"},
    "chat": {"limit": 4, "overrun": "fast"},
    "render": {"limit": 3, "overrun": "strict", "executor": "pull"},
    "tag": {"limit": 6, "overrun": "fast", "executor": "pull"},
}
CALLED = [name for name, each in SERVICES.items() if "executor" not in each]
PIPELINE = ("story", ["chat", "render", "image"])

APIS, WORKERS, DISPATCHERS = 2, 4, 2
CLIENTS = 6


class Act(NamedTuple):
    """A client's next act, `pause` seconds after the one before."""

    pause: float
    op: str
    body: dict[str, Any]
    share: float


class Fault(NamedTuple):
    """Begins `at` seconds after the start and lasts for `seconds`."""

    at: float
    fault: str
    target: str
    seconds: float


OPS = {
    "submit": 40,
    "twins": 5,
    "batch": 6,
    "fan_out": 4,
    "cancel": 8,
    "skip": 10,
    "resume": 6,
    "get": 12,
    "stream": 5,
}


def client_plan(seed: int, client: int) -> Iterator[Act]:
    random = Random(f"{seed}/client/{client}")
    while True:
        op = random.choices(list(OPS), list(OPS.values()))[0]
        count = {"batch": random.randint(2, 12), "fan_out": random.randint(1, 3)}.get(op, 1)
        if op == "fan_out":
            body: dict[str, Any] = {
                **_job(random, "chat"),
                "matrix": {
                    "question": [f"q{n}" for n in range(count)],
                    "model": [f"m{n}" for n in range(random.randint(1, 3))],
                },
            }
            body.pop("model", None)
        elif op == "batch":
            body = {"jobs": [_job(random) for _ in range(count)]}
        else:
            body = _job(random)
        yield Act(random.uniform(0.05, 0.7), op, body, random.random())


def _job(random: Random, name: str | None = None) -> dict[str, Any]:
    chosen = name or random.choice([*SERVICES, PIPELINE[0]])
    seconds = random.choice((0.02, 0.1, 0.3, 0.3, 1.0, 1.0, 2.0, 6.0))
    job: dict[str, Any] = {
        "feature_name" if chosen == PIPELINE[0] else "service": chosen,
        "user_id": f"user-{random.randrange(USERS)}",
        "input_data": {"seconds": seconds, "fails": random.choice((0, 0, 0, 0, 0, 0, 1, 9))},
    }
    if random.random() < 0.15:
        job["max_wait_seconds"] = random.choice((0.5, 1.5))
    return job


PROCESSES = (
    *(f"api-{n}" for n in range(APIS)),
    *(f"worker-{n}" for n in range(WORKERS)),
    *(f"dispatch-{n}" for n in range(DISPATCHERS)),
)
WORKER_LINKS = tuple(f"worker-{n}:api" for n in range(WORKERS))
"""Chosen more often: a result that arrives after its lease has ended is what fencing is for."""

LINKS = (
    *(f"{name}:{store}" for name in (*PROCESSES[:APIS], *PROCESSES[APIS + WORKERS :])
      for store in ("postgres", "redis")),
    *WORKER_LINKS,
    *(f"clients:api-{n}" for n in range(APIS)),
    *(f"calls:{name}" for name in CALLED),
)  # fmt: skip
"""Connections that go through a proxy."""

KINDS = {
    "kill": 30,
    "pause": 15,
    "restart": 10,
    "cut": 15,
    "half_open": 12,
    "drop_replies": 8,
    "refuse": 8,
    "kill_redis": 5,
    "pause_redis": 4,
    "kill_postgres": 5,
    "pause_postgres": 3,
    "disk_full": 5,
}
SECONDS = {
    "kill": (0.1, 2),
    "pause": (1, 9),
    "restart": (0, 0.5),
    "cut": (0, 0),
    "half_open": (1, 8),
    "drop_replies": (1, 6),
    "refuse": (1, 7),
    "kill_redis": (0.3, 3),
    "pause_redis": (1, 3),
    "kill_postgres": (0.3, 3),
    "pause_postgres": (1, 3),
    "disk_full": (2, 5),
}


def fault_plan(seed: int, seconds: float, *, without: frozenset[str]) -> Iterator[Fault]:
    """Faults until `seconds`, several at once now and then. Every kind happens once before one is
    chosen by chance."""
    random = Random(f"{seed}/faults")
    first = sorted(KINDS)
    random.shuffle(first)
    at = random.uniform(1, 2)
    while at < seconds:
        kind = first.pop() if first else random.choices(list(KINDS), list(KINDS.values()))[0]
        target = _target(random, kind)
        lasts = random.uniform(*SECONDS[kind])
        if kind not in without:
            yield Fault(at, kind, target, lasts)
        at += random.uniform(0.5, 4.5)


def _target(random: Random, kind: str) -> str:
    if kind in ("kill", "pause", "restart"):
        return random.choice(PROCESSES)
    if kind == "disk_full" or kind.endswith("_postgres"):
        return "postgres"
    if kind.endswith("_redis"):
        return "redis"
    return random.choice(LINKS + WORKER_LINKS * 2)
