"""The reason why a job is next, in one sentence. It names only users that the audience may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from fairlane.index.index import NextJob
from fairlane.model.service import Fairness, Service
from fairlane.model.step import Lane
from fairlane.model.tier import Tiers
from fairlane.policy.shares import ShareKind
from fairlane.units import SECOND


class WhyNext(NamedTuple):
    badges: list[str]
    sentence: str


class FrontContext(NamedTuple):
    """What the sentences depend on: the service, the tiers, the load times of models (µs), the
    prices that were paid for skips by job, what keeps every job of the service from starting (or
    ""), the time, the name of a user if the audience may see it, and the regions with an open
    circuit breaker, each with the time of its next try (µs). A simulation runs `speed` times as
    fast as it shows."""

    service: Service
    tiers: Tiers
    loads: Mapping[str, int]
    prices: Mapping[str, int]
    blocked: str
    now: int
    name: Callable[[str], str | None]
    failing: Mapping[str, int]
    speed: float = 1

    def duration(self, microseconds: int) -> str:
        """As a viewer sees it: in simulated time, if the system is a simulation."""
        return duration(round(microseconds * self.speed))


def why_next(front: Sequence[NextJob], place: int, context: FrontContext) -> WhyNext:
    """Why the job at this place of the front (from 0) starts then."""
    found = _chosen(front, place, context)
    if place == 0 and context.blocked:
        return WhyNext(found.badges, context.blocked)
    if front[place].blocked and not context.blocked:
        return WhyNext(found.badges, _blocked(front[place], context))
    return found


def _blocked(job: NextJob, context: FrontContext) -> str:
    """Why this job cannot start while others of its service can."""
    regions = Lane.parse(job.entry.lane).regions or tuple(context.service.regions)
    failing = [region for region in regions if region in context.failing]
    if not failing or len(failing) < len(regions):
        name = context.name(job.entry.user)
        who = f"{name} has" if name is not None else "this user has"
        return f"{who} as many jobs running as allowed"
    verb = "does" if len(failing) == 1 else "do"
    left = min(context.failing[region] for region in failing) - context.now
    then = f"next try in {context.duration(left)}" if left > 0 else "being tried again"
    return f"{' and '.join(failing)} {verb} not answer: {then}"


def _chosen(front: Sequence[NextJob], place: int, context: FrontContext) -> WhyNext:
    job = front[place]
    match job.kind:
        case ShareKind.SKIP:
            own = context.name(job.entry.user) is not None
            price = context.prices.get(job.entry.id) if own else None
            return WhyNext(["paid"], f"paid {price} to go first" if price else "paid to go first")
        case ShareKind.FRONT:
            return WhyNext(["retry"], "goes first again after a failed attempt")
        case ShareKind.AGED:
            waited = context.duration(context.now - job.since)
            if job.level < job.entry.rank:
                level = context.tiers.names[job.level]
                return WhyNext(["promoted"], f"waited {waited}: counts as {level}")
            tier = context.tiers.names[job.entry.rank]
            return WhyNext(["aged"], f"waited {waited}: longer than a job of {tier} should")
        case ShareKind.FRESH:
            return _fresh(front, place, context)


def _fresh(front: Sequence[NextJob], place: int, context: FrontContext) -> WhyNext:
    job, before = front[place], front[:place]
    if job.warm and job.entry.model:
        return WhyNext(["warm model"], _warm(job, context))
    tier = context.tiers.names[job.entry.rank]
    if context.service.fairness is Fairness.NONE:
        return WhyNext([], f"has waited longest in {tier}")
    if any(each.entry.user == job.entry.user for each in before) or job.in_flow > 1:
        name = context.name(job.entry.user)
        whose = f"{name}'s" if name is not None else "this user's"
        return WhyNext(
            [], f"oldest of {whose} {job.in_flow}" if job.in_flow > 1 else f"last of {whose}"
        )
    peers = [each for each in before if each.entry.rank == job.entry.rank]
    if not peers:
        return WhyNext([], "best tier waiting" if place == 0 else f"first of {tier}")
    name = context.name(peers[-1].entry.user)
    after = f"after {name}: equal share" if name is not None else f"equal share in {tier}"
    return WhyNext([], after)


def _warm(job: NextJob, context: FrontContext) -> str:
    if context.name(job.entry.user) is None:
        return "its model is loaded"
    model = job.entry.model
    load = context.loads.get(model)
    saving = f" (saves {context.duration(load)} for everyone)" if load else ""
    return f"keeps {model} loaded{saving}"


def blocked_sentence(
    service: Service,
    open_until: int,
    held_until: int,
    now: int,
    *,
    has_worker: bool = True,
    speed: float = 1,
) -> str:
    """What keeps every job of the service from starting; "" if nothing does. `open_until`: its
    circuit breaker is open until then. `held_until`: every slot is taken, and until then one is
    kept for a call that was cut off. 0 = not so. `has_worker`: a live worker runs the service."""
    if service.paused:
        return "the service is paused"
    if not has_worker:
        return "no live worker runs it"
    if open_until:
        left = duration(round(max(0, open_until - now) * speed))
        return f"the service does not answer: next try in {left}"
    if held_until:
        at = datetime.fromtimestamp(held_until / SECOND, UTC)
        return f"slot is held until {at:%H:%M:%S} UTC: a cut call may still run there"
    return ""


def duration(microseconds: int) -> str:
    """For example "0.4 s", "22 s", "61 min" or "3.5 h"."""
    seconds = microseconds / SECOND
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
