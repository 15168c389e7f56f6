"""Looking: where a job stands, when it will start, why it waits, how the whole queue is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import NamedTuple

from fairlane.engine.core import Core
from fairlane.engine.forecast import Serving, Waiting, is_busy
from fairlane.engine.offers import uncovered
from fairlane.errors import Expired, NotFound, NotReady
from fairlane.index.index import Standing, Stats
from fairlane.ledger.shapes import Accepted, Filter
from fairlane.model.attempt import Attempt
from fairlane.model.event import Event
from fairlane.model.job import Band, Job, Json, NewJob
from fairlane.model.state import State
from fairlane.model.step import Lane, attempts_name
from fairlane.model.worker import Worker, WorkerState
from fairlane.policy.aging import next_promotion
from fairlane.policy.eta import Eta, rounded

SECOND = 1_000_000


class Reason(NamedTuple):
    """Why a job waits: a code for programs, a text for people."""

    code: str
    text: str


class View(NamedTuple):
    """A job as its owner sees it. Position, ETA and reasons only while it is queued."""

    job: Job
    input: Json
    context: dict[str, Json]
    waited: int
    position: int | None
    effective_tier: str
    eta: Eta | None
    reasons: tuple[Reason, ...]
    next_promotion_at: int | None


class Placement(NamedTuple):
    """Where a job stands. No position: it waits for its time, is a fan-out, or the index is
    away."""

    tier: str
    effective_tier: str
    position: int | None
    eta: Eta | None


class Page(NamedTuple):
    jobs: list[Job]
    next: str | None


class Overview(NamedTuple):
    stats: Stats
    queued: int
    running: int
    completed_last_minute: int
    failed_last_minute: int
    unrunnable: dict[str, int]


async def get(core: Core, job_id: str, tenant: str | None = None) -> Job:
    """The job as the ledger has it. Another tenant's looks like none."""
    job = (await core.ledger.jobs([job_id])).get(job_id)
    if job is None or tenant not in (None, job.tenant):
        status = await core.ledger.fate(job_id, tenant) if job is None else None
        if status is not None:
            raise Expired(job_id, status)
        raise NotFound("job", job_id)
    return job


async def view(core: Core, job_id: str, tenant: str | None = None) -> View:
    job = await get(core, job_id, tenant)
    sent, context = await core.ledger.payload(job_id)
    now = core.now()
    standing = None
    if job.state is State.QUEUED:
        with suppress(NotReady):  # where it stands is not known then
            standing = await core.index.standing(job_id, now)
    names = core.catalog.tiers.names
    return View(
        job=job,
        input=sent,
        context={**_tries(job), **context},
        waited=job.waited_until(now),
        position=rounded(standing.position) if standing and standing.position else None,
        effective_tier=names[standing.level] if standing else job.level,
        eta=_eta(core, _waiting(job), standing, now) if standing else None,
        reasons=tuple(_reasons(core, job, standing, now)) if standing else (),
        next_promotion_at=_next_promotion_at(core, job, standing, now) if standing else None,
    )


def _tries(job: Job) -> dict[str, Json]:
    """How often the step it is at was tried, though nothing came of it."""
    if not job.attempt or job.step >= len(job.plan):
        return {}
    return {attempts_name(job.step, job.plan[job.step].service): job.attempt}


async def standing(core: Core, job: Job) -> Placement | None:
    """Where a queued job stands now, without a look into the ledger; None if nobody knows."""
    now = core.now()
    try:
        found = await core.index.standing(job.id, now)
    except NotReady:
        return None
    return None if found is None else _placed(core, _waiting(job), found, now)


async def placement(core: Core, accepted: Accepted, request: NewJob) -> Placement:
    """Without a look into the ledger: what a caller is told at once."""
    now, (job_id, tier) = core.now(), accepted
    found = None
    with suppress(NotReady):
        found = await core.index.standing(job_id, now)
    if found is None:
        return unplaced(tier)
    first = core.terms.of(request, tier).plan[0].service
    waiting = Waiting(job_id, first, tier, request.model, max(now, request.run_at or 0))
    return _placed(core, waiting, found, now)


def unplaced(tier: str) -> Placement:
    """Only the tier of a job that was just accepted."""
    return Placement(tier, tier, None, None)


def _placed(core: Core, job: Waiting, found: Standing, now: int) -> Placement:
    return Placement(
        job.tier,
        core.catalog.tiers.names[found.level],
        rounded(found.position) if found.position else None,
        _eta(core, job, found, now),
    )


async def list_jobs(core: Core, wanted: Filter, cursor: str | None, limit: int) -> Page:
    """Newest first. The cursor is where the next page begins; rows that live through the whole
    listing are returned exactly once."""
    found = await core.ledger.list_jobs(wanted, cursor, limit + 1)
    more = len(found) > limit
    return Page(found[:limit], found[limit - 1].id if more else None)


async def attempts(core: Core, job_id: str, tenant: str | None = None) -> list[Attempt]:
    await get(core, job_id, tenant)
    return await core.ledger.attempts(job_id)


async def events(core: Core, job_id: str, after: int = 0) -> AsyncIterator[Event]:
    """Everything after that number, then whatever comes, without a gap, until the job is over."""
    with core.watchers.watching(job_id) as bell:
        while True:
            bell.clear()
            job = (await core.ledger.jobs([job_id])).get(job_id)
            for event in await core.ledger.events(job_id, after):
                after = event.seq
                yield event
            if job is None or not job.live:
                return
            await bell.wait()


async def overview(core: Core) -> Overview:
    stats = await core.index.stats()
    recent = await core.ledger.finished_since(core.now() - 60 * SECOND)
    queued, running = await core.ledger.load()
    return Overview(
        stats=stats,
        queued=queued,
        running=running,
        completed_last_minute=recent.get(State.COMPLETED, 0),
        failed_last_minute=recent.get(State.FAILED, 0) + recent.get(State.DEAD, 0),
        unrunnable=await _unrunnable(core, stats),
    )


async def _unrunnable(core: Core, stats: Stats) -> dict[str, int]:
    """How many jobs wait in lanes that no worker heard of within its lease covers."""
    return await uncovered(stats.lanes, await _alive(core))


async def is_runnable(core: Core, job: Job) -> bool:
    """Whether a worker that takes work could run the step that the job waits for."""
    lane = Lane.parse(job.lane)
    return any(worker.covers(lane) for worker in await _alive(core))


async def _alive(core: Core) -> list[Worker]:
    """Workers that take work and were heard of within their lease."""
    now = core.now()
    heard_of = [*await core.ledger.workers(), *core.seen.values()]
    return [
        worker
        for worker, at in heard_of
        if now - at <= worker.lease and worker.state is WorkerState.ACTIVE
    ]


# --- when ----------------------------------------------------------------------------------------
def _waiting(job: Job) -> Waiting:
    return Waiting(job.id, job.current.service, job.tier, job.model, job.ready_at)


def _eta(core: Core, job: Waiting, standing: Standing, now: int) -> Eta | None:
    """None while nobody can know. A service that is away is not called before its next try."""
    if "paused" in standing.reasons:
        return None
    limit = core.catalog.service(job.service).limit
    serving = Serving(
        slots=limit or max(1, len(core.loaded)),
        cost=core.costs.get(job.service),
        free=not is_busy(standing) if limit else core.asleep > 0,
    )
    eta = core.forecasts.eta(job, standing, serving, now)
    closed = [reason for reason in standing.reasons if reason.startswith("closed:")]
    away = max((int(reason.rpartition(":")[2]) - now for reason in closed), default=0)
    return Eta(max(away, eta.p50), max(away, eta.p90))


# --- why -----------------------------------------------------------------------------------------
def _reasons(core: Core, job: Job, standing: Standing, now: int) -> list[Reason]:
    found = []
    if job.ready_at > now:
        found.append(Reason("delayed", f"starts in {(job.ready_at - now) / SECOND:.0f} s"))
    ahead = standing.position - 1
    if ahead > 0:
        found.append(Reason("ahead", f"{ahead} ahead of you"))
    if standing.behind_own:
        found.append(Reason("own", f"{standing.behind_own} of your own jobs are first"))
    found += [_explained(reason, now) for reason in standing.reasons if reason != "delayed"]
    promotion = _next_promotion_at(core, job, standing, now)
    if promotion is not None:
        found.append(Reason("promotion", f"next promotion in {(promotion - now) / SECOND:.0f} s"))
    return found


def _explained(reason: str, now: int) -> Reason:
    code, _, rest = reason.partition(":")
    match code:
        case "busy":
            pool, _, use = rest.rpartition(":")
            return Reason(code, f"{pool.partition(':')[2]} {use} busy")
        case "rate":
            pool, _, use = rest.rpartition(":")
            return Reason(code, f"{pool.rpartition(':')[2]} {use} this minute")
        case "closed":
            name, _, until = rest.rpartition(":")
            left = max(0, int(until) - now) / SECOND
            return Reason(code, f"{name} does not answer; next try in {left:.0f} s")
        case "paused":
            return Reason(code, "the service is paused")
        case "user_running":
            return Reason(code, f"{rest} of your jobs are running, which is the most allowed")
        case _:
            return Reason(code, "next in line for the slots it needs")


def _next_promotion_at(core: Core, job: Job, standing: Standing, now: int) -> int | None:
    rank = core.catalog.tiers.rank(job.tier)
    found = next_promotion(now - standing.since, core.catalog.tiers.thresholds[rank])
    if found is None or standing.position == 0 or standing.behind_own or job.band is Band.SKIP:
        return None
    return now + found[1]
