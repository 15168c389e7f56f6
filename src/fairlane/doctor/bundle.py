"""The support bundle: what another person needs to understand a fault, without secrets, payloads,
user names and texts of jobs."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import urlsplit

from fairlane.config.settings import Settings
from fairlane.doctor.facts import (
    CeleryFacts,
    DriftFacts,
    EndedFacts,
    EventFacts,
    Facts,
    IndexAnswer,
    IndexFacts,
    InvariantFacts,
    KeyFacts,
    LedgerFacts,
    LineFacts,
    NotLooked,
    RetentionFacts,
    RoundFacts,
    RunningFacts,
    Unknown,
    WebhookFacts,
    WorkerFacts,
)
from fairlane.ledger.messages import AuditedChange
from fairlane.model.catalog import Catalog
from fairlane.model.service import is_user_pool

PACKAGES = ("fairlane", "uvicorn", "uvloop", "asyncpg", "redis", "celery", "aiohttp", "fastapi")

CONTENT = {
    "versions": "versions of Fairlane, Python, the system, libraries and stores",
    "settings": "settings without addresses of stores, headers and secrets",
    "findings": "what the doctor found",
    "facts": "counts, slots, running jobs by id, workers, state of the stores",
    "audit": "the latest administrative changes, without their values",
    "metrics": "Prometheus metrics",
    "log": "the last 1,000 lines of the server's log",
}
"""The parts of a bundle, and what each holds. No part has inputs, outputs, error texts, names of
users, keys, or addresses of webhooks."""


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def settings_shown(settings: Settings, catalog: Catalog) -> dict[str, Any]:
    """The settings in force. Of addresses only the host is shown, and of secrets nothing."""
    server = settings.server
    return {
        "source": settings.source,
        "mode": server.mode,
        "server": {
            name: getattr(server, name)
            for name in (
                "host",
                "port",
                "lease",
                "grace",
                "submits",
                "connections",
                "max_body",
                "body_timeout",
                "key_rate",
                "log_level",
                "unsafe",
            )
        },
        "tiers": [
            _fields(tier, "name promote max_retries timeout pending") for tier in catalog.tiers.all
        ],
        "services": [
            _fields(each, "name executor limit rate paused fairness overrun timeout max_attempts")
            for each in catalog.services.values()
        ],
        "providers": [_fields(each, "name limit rate") for each in catalog.providers.values()],
        "limits": _fields(catalog.limits, " ".join(catalog.limits.__slots__)),
        "called_hosts": {
            name: urlsplit(endpoint.url).hostname for name, endpoint in settings.endpoints.items()
        },
        "notes": list(settings.notes),
    }


def _fields(value: object, names: str) -> dict[str, Any]:
    return {name: _plain(getattr(value, name)) for name in names.split()}


def _plain(value: object) -> Any:
    return value if isinstance(value, int | float | bool | dict | None) else str(value)


def audit_heads(changes: Iterable[AuditedChange]) -> list[dict[str, Any]]:
    """Who changed what and when, without the values and without names of users."""
    return [
        {"at": each.at, "actor": each.actor, "action": each.action, "target": _target(each.target)}
        for each in changes
    ]


def _target(target: str) -> str:
    return target if target.startswith(("services/", "providers/")) else "…"


def facts_shown(facts: Facts) -> dict[str, Any]:
    """The facts without texts of jobs, names of users, and addresses."""
    shown: dict[str, Any] = {}
    for kind, show in SHOWN.items():
        if kind not in facts:
            continue
        try:
            shown[kind.__name__] = show(facts)
        except Unknown as reason:
            shown[kind.__name__] = NotLooked(str(reason))._asdict()
    return shown


def _line(facts: Facts) -> dict[str, Any]:
    line = facts[LineFacts]
    stats = line.stats
    return {
        "queued": line.queued,
        "running": line.running,
        "unrunnable": dict(line.unrunnable),
        "depths": [each._asdict() for each in stats.depths],
        "pools": [each._asdict() for each in stats.pools if not is_user_pool(each.pool)],
        "breakers": {
            name: {"open_until": each.open_until, "failed": len(each.failed)}
            for name, each in stats.breakers.items()
        },
        "held": stats.held,
        "idle": stats.idle,
    }


def _running(facts: Facts) -> dict[str, Any]:
    found = facts[RunningFacts]
    fields = "id tier worker region started_at lease_until deadline fence attempt"
    return {
        "jobs": [
            {**_fields(job, fields), "service": job.current.service} for job in found.jobs[:1_000]
        ],
        "slots": dict(
            Counter(each.slot.pool for each in found.slots if not is_user_pool(each.slot.pool))
        ),
        "usual_seconds": dict(found.usual_seconds),
    }


def _workers(facts: Facts) -> list[dict[str, Any]]:
    found = facts[WorkerFacts]
    return [
        {
            **_fields(worker, "id state region capacity heartbeat version"),
            "services": sorted(worker.services or ()),
            "capabilities": sorted(worker.capabilities),
            "last_heard": at,
            "holds": found.holds[worker.id],
        }
        for worker, at in found.workers
    ]


def _keys(facts: Facts) -> dict[str, int]:
    return dict(Counter(str(key.role) for key in facts[KeyFacts].keys if key.revoked_at is None))


def _webhooks(facts: Facts) -> dict[str, int]:
    return dict(Counter(str(outcome or "pending") for _, outcome in facts[WebhookFacts].latest))


def _index(facts: Facts) -> dict[str, Any]:
    state = facts[IndexFacts].state
    return {
        "ready": state.ready,
        "rebuilding": state.rebuilding,
        "same_epoch": state.epoch == state.own_epoch,
        "server": state.server._asdict() if state.server else None,
    }


def _ledger(facts: Facts) -> dict[str, Any]:
    found = facts[LedgerFacts]
    return {
        "server": {**found.server._asdict(), "settings": dict(found.server.settings)},
        "dead_rows": dict(found.signs.dead or {}),
        "oldest_transaction": found.signs.oldest_transaction,
        "outbox_rows": found.outbox_rows,
        "outbox_age": found.outbox_age,
    }


def _drift(facts: Facts) -> dict[str, Any]:
    found = facts[DriftFacts]
    return {**found.drift._asdict(), "pools": [each._asdict() for each in found.pools]}


def _ended(facts: Facts) -> dict[str, Any]:
    found = facts[EndedFacts]
    recent: Mapping[Any, int] = found.last_minute
    return {"last_minute": {str(k): n for k, n in recent.items()}, "dead": found.dead}


SHOWN: dict[type, Any] = {
    LedgerFacts: _ledger,
    IndexAnswer: lambda facts: {"answers": facts[IndexAnswer].answers},
    IndexFacts: _index,
    LineFacts: _line,
    RunningFacts: _running,
    WorkerFacts: _workers,
    EndedFacts: _ended,
    KeyFacts: _keys,
    WebhookFacts: _webhooks,
    RetentionFacts: lambda facts: {"overdue": facts[RetentionFacts].overdue},
    EventFacts: lambda facts: _fields(facts[EventFacts], "arrive listeners positions_per_second"),
    RoundFacts: lambda facts: dict(facts[RoundFacts].ended_at),
    CeleryFacts: lambda facts: {k: list(v) for k, v in (facts[CeleryFacts].loads or {}).items()},
    InvariantFacts: lambda facts: facts[InvariantFacts].counts._asdict(),
    DriftFacts: _drift,
}
