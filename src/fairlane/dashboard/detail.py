"""The detail of one service, for viewers that watch it: the next 50 jobs, the residency of its
slots, fair shares, and the accuracy of its ETAs."""

from __future__ import annotations

from typing import Any

from fairlane.dashboard.audience import Audience, user_name
from fairlane.dashboard.frame import MILLISECOND, next_jobs
from fairlane.dashboard.history import RecentHistory
from fairlane.dashboard.reading import SystemReading
from fairlane.engine.monitor import QueueFront
from fairlane.model.service import Service

Json = Any
MAX_SHARES = 20


def service_detail(
    service: Service, reading: SystemReading, history: RecentHistory, audience: Audience
) -> dict[str, Json]:
    front = reading.fronts.get(service.name, QueueFront([], {}, {}))
    return {
        "service": service.name,
        "next": next_jobs(service, front, reading, audience),
        "residency": _residency(service, reading, history, audience),
        "shares": _shares(service.name, front, history, audience),
        "accuracy": _accuracy(service.name, reading, history),
        "arrivals_per_second": history.arrivals_per_second(service.name),
    }


def _residency(
    service: Service, reading: SystemReading, history: RecentHistory, audience: Audience
) -> list[Json]:
    found = []
    names = reading.catalog.tiers.names
    for segment in history.residency(service.name):
        own = audience.owns(segment.user)
        region = segment.pool.partition("@")[2]
        found.append(
            {
                "slot": segment.n - 1,
                "region": region or None,
                "from": segment.since // MILLISECOND,
                "to": None if segment.until is None else segment.until // MILLISECOND,
                "model": (segment.model or None) if own else None,
                "tier": names[segment.rank] if segment.rank < len(names) else None,
                "user": user_name(segment.user) if own else None,
                "job": segment.job if own else None,
            }
        )
    return found


def _shares(
    service: str, front: QueueFront, history: RecentHistory, audience: Audience
) -> list[Json]:
    waiting: dict[str, int] = {}
    for job, _ in front.jobs:
        waiting[job.entry.user] = max(waiting.get(job.entry.user, 0), job.in_flow)
    own = {user: each for user, each in history.shares(service).items() if audience.owns(user)}
    top = sorted(own.items(), key=lambda each: (-each[1].served, each[0]))[:MAX_SHARES]
    return [
        {
            "user": user_name(user),
            "served_seconds": round(share.served, 1),
            "due_seconds": round(share.due, 1),
            "waiting": waiting.get(user, 0),
        }
        for user, share in top
    ]


def _accuracy(service: str, reading: SystemReading, history: RecentHistory) -> Json:
    """How many jobs with an ETA started in the last 15 minutes, and the part that started by its
    p90."""
    tiers = [history.total(service, tier) for tier in reading.catalog.tiers.names]
    estimates = sum(each.estimated for each in tiers)
    kept = sum(each.kept for each in tiers)
    return {"estimates": estimates, "held": round(kept / estimates, 3) if estimates else None}
