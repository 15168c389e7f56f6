"""Queries (read side): the position of a job, its ETA, the reasons why it waits (explain), and the
state of the whole queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from fairlane.engine.core import Core
from fairlane.engine.eta import ServiceRate, Waiting, is_busy
from fairlane.engine.worker_coverage import uncovered
from fairlane.errors import Expired, NotFound, NotReady
from fairlane.index.index import Standing, Stats
from fairlane.ledger.messages import Filter, SubmissionAccepted
from fairlane.model.attempt import Attempt, Fault, Outcome
from fairlane.model.job import Band, Job, Json, NewJob
from fairlane.model.quality_check import QualityVerdict, verdict_of
from fairlane.model.service import Executor
from fairlane.model.state import State
from fairlane.model.step import Lane, attempts_name, context_name
from fairlane.model.worker import Worker, WorkerState
from fairlane.policy.aging import next_promotion
from fairlane.policy.eta_calibration import Eta, rounded
from fairlane.units import SECOND


class WaitReason(NamedTuple):
    """Why a job waits: a code for programs, a text for people, and the latest time (µs) at which
    the reason ends, if that is known."""

    code: str
    text: str
    until: int | None = None


class QualityResult(NamedTuple):
    """The latest verdict of a quality check. `step` and `checked_step` are the names of their
    outputs in the context; a rejected output may no longer be there."""

    step: str
    checked_step: str
    verdict: QualityVerdict


class JobDetail(NamedTuple):
    """A job as its owner sees it. Position, ETA, reasons and the saving of a paid skip are set only
    while it is queued. `started_at` is its first start, `execution_time` the total time of its
    attempts (µs), `last_error` the last failed attempt of a job that has not ended. `quality` has
    the latest verdict of each quality check. `cells` counts the cells of a fan-out by state."""

    job: Job
    input: Json
    context: dict[str, Json]
    waited: int
    position: int | None
    effective_tier: str
    eta: Eta | None
    reasons: tuple[WaitReason, ...]
    next_promotion_at: int | None
    saved_by_skip: Eta | None = None
    started_at: int | None = None
    execution_time: int | None = None
    last_error: Attempt | None = None
    quality: tuple[QualityResult, ...] = ()
    cells: dict[State, int] = {}  # noqa: RUF012 - never changed


class Placement(NamedTuple):
    """The position of a job in the queue. The position is None if the job is delayed, is a fan-out,
    or the index does not answer."""

    tier: str
    effective_tier: str
    position: int | None
    eta: Eta | None


class JobListPage(NamedTuple):
    jobs: list[Job]
    next: str | None


class Overview(NamedTuple):
    stats: Stats
    queued: int
    running: int
    completed_last_minute: int
    failed_last_minute: int
    unrunnable: dict[str, int]


async def get(core: Core, job_id: str, tenant: str | None = None, key: str | None = None) -> Job:
    """The job from the ledger. Raises NotFound for a job of another tenant or key, too."""
    job = (await core.ledger.jobs([job_id])).get(job_id)
    if job is None or tenant not in (None, job.tenant) or key not in (None, job.key):
        owner = tenant if key is None else f"{tenant}/{key}"
        status = await core.ledger.fate(job_id, owner) if job is None else None
        if status is not None:
            raise Expired(job_id, status)
        raise NotFound("job", job_id)
    return job


async def view(core: Core, job_id: str, tenant: str | None = None) -> JobDetail:
    job = await get(core, job_id, tenant)
    sent, context = await core.ledger.payload(job_id)
    tried = await core.ledger.attempts(job_id) if job.fence else []
    now = core.now()
    standing = None
    if job.state is State.QUEUED:
        with suppress(NotReady):  # then its position is unknown
            standing = await core.index.standing(job_id, now)
    names = core.catalog.tiers.names
    runnable = standing is None or await is_runnable(core, job.lane)
    eta = _eta(core, waiting_of(job), standing, now) if standing and runnable else None
    saves = _saved_by_skip(core, waiting_of(job), standing, now) if standing and runnable else None
    reasons = tuple(_reasons(core, job, standing, now)) if standing else ()
    return JobDetail(
        job=job,
        input=sent,
        context=_with_times({**_tries(job), **context}, job, tried),
        waited=job.waited_until(now),
        position=rounded(standing.position) if standing and standing.position else None,
        effective_tier=names[standing.level] if standing else job.level,
        eta=eta,
        reasons=reasons if runnable else (_unrunnable_reason(core, job.lane), *reasons),
        next_promotion_at=_next_promotion_at(core, job, standing, now) if standing else None,
        saved_by_skip=saves,
        started_at=min((each.started_at for each in tried), default=job.started_at),
        execution_time=_execution_time(job, tried, now),
        last_error=_last_error(job, tried),
        quality=tuple(_quality(job, context, tried)),
        cells=await core.ledger.cell_counts(job_id) if job.fan_out else {},
    )


def _execution_time(job: Job, tried: Sequence[Attempt], now: int) -> int | None:
    if not job.fence:
        return None
    running = now - job.started_at if job.token and job.started_at is not None else 0
    return sum(each.ended_at - each.started_at for each in tried) + max(0, running)


def _last_error(job: Job, tried: Sequence[Attempt]) -> Attempt | None:
    failed = [each for each in tried if each.fault is not None]
    return max(failed, key=lambda each: each.fence) if failed and job.live else None


def _quality(
    job: Job, context: dict[str, Json], tried: Sequence[Attempt]
) -> Iterator[QualityResult]:
    for number, step in enumerate(job.plan):
        if step.quality_check is None:
            continue
        name = context_name(number, step.service)
        checked = context_name(number - 1, job.plan[number - 1].service)
        if name in context:
            verdict = verdict_of(context[name]["data"])
        else:
            verdict = _last_rejection([each for each in tried if each.step == number])
        if verdict is not None:
            yield QualityResult(name, checked, verdict)


def _last_rejection(tried: Sequence[Attempt]) -> QualityVerdict | None:
    found = [each for each in tried if each.fault is Fault.QUALITY]
    if not found:
        return None
    last = max(found, key=lambda each: each.fence)
    return QualityVerdict(passed=False, reason=last.message or "")


def _with_times(context: dict[str, Json], job: Job, tried: Sequence[Attempt]) -> dict[str, Json]:
    """Adds the execution time (ms) of each finished step, unless its service has reported one. The
    last success counts: a quality check may have rejected an earlier one."""
    for each in sorted(tried, key=lambda each: each.fence, reverse=True):
        found = context.get(context_name(each.step, job.plan[each.step].service))
        if each.outcome is Outcome.COMPLETED and isinstance(found, dict):
            metrics = found.get("metrics")
            if isinstance(metrics, dict):
                metrics.setdefault("execution_time_ms", (each.ended_at - each.started_at) // 1000)
    return context


def _tries(job: Job) -> dict[str, Json]:
    """The number of attempts of the present step, which has no output yet."""
    if not job.attempt or job.step >= len(job.plan):
        return {}
    return {attempts_name(job.step, job.plan[job.step].service): job.attempt}


async def standing(core: Core, job: Job) -> Placement | None:
    """The present position of a queued job, from the index alone; None if the index does not know
    the job or does not answer."""
    now = core.now()
    try:
        found = await core.index.standing(job.id, now)
    except NotReady:
        return None
    if found is None:
        return None
    runnable = await is_runnable(core, job.lane)
    return placed(core, waiting_of(job), found, now, runnable=runnable)


async def placement(core: Core, accepted: SubmissionAccepted, request: NewJob) -> Placement:
    """The position of a job that was just accepted, from the index alone."""
    now, (job_id, tier) = core.now(), accepted
    found = None
    with suppress(NotReady):
        found = await core.index.standing(job_id, now)
    if found is None:
        return unplaced(tier)
    first = core.terms.of(request, tier).plan[0]
    ready_at = max(now, request.run_at or 0)
    waiting = Waiting(job_id, first.service, tier, request.model, ready_at)
    runnable = await is_runnable(core, first.lane)
    return placed(core, waiting, found, now, runnable=runnable)


def unplaced(tier: str) -> Placement:
    """The placement of a job whose position is unknown: only its tier."""
    return Placement(tier, tier, None, None)


def placed(core: Core, job: Waiting, found: Standing, now: int, *, runnable: bool) -> Placement:
    return Placement(
        job.tier,
        core.catalog.tiers.names[found.level],
        rounded(found.position) if found.position else None,
        _eta(core, job, found, now) if runnable else None,
    )


async def list_jobs(core: Core, wanted: Filter, cursor: str | None, limit: int) -> JobListPage:
    """Newest first. The cursor is where the next page begins; rows that live through the whole
    listing are returned exactly once."""
    found = await core.ledger.list_jobs(wanted, cursor, limit + 1)
    more = len(found) > limit
    return JobListPage(found[:limit], found[limit - 1].id if more else None)


async def first_starts(core: Core, jobs: Sequence[Job]) -> dict[str, int]:
    """The first start (µs) of each of these jobs that has started more than once."""
    several = [job.id for job in jobs if job.fence > 1]
    found = await asyncio.gather(*(core.ledger.attempts(job) for job in several))
    starts = ([each.started_at for each in tried] for tried in found)
    return {job: min(its) for job, its in zip(several, starts, strict=True) if its}


async def attempts(core: Core, job_id: str, tenant: str | None = None) -> list[Attempt]:
    await get(core, job_id, tenant)
    return await core.ledger.attempts(job_id)


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
        unrunnable=await unrunnable(core, stats),
    )


async def unrunnable(core: Core, stats: Stats) -> dict[str, int]:
    """How many jobs wait in each lane that no live worker covers."""
    return await uncovered(stats.lanes, await _alive(core))


async def is_runnable(core: Core, lane: str) -> bool:
    """Whether a live worker that is not draining covers this lane. A service whose callers run the
    steps themselves needs no worker."""
    wanted = Lane.parse(lane)
    if core.service(wanted.service).executor is Executor.CALLER:
        return True
    now, (read_at, known) = core.now(), core.workers_read
    if 0 <= now - read_at < SECOND and _any_covers(core, known, wanted, now):
        return True
    found = await core.ledger.workers()
    core.workers_read = (now, found)
    return _any_covers(core, found, wanted, now)


def _any_covers(core: Core, known: Sequence[tuple[Worker, int]], lane: Lane, now: int) -> bool:
    return any(worker.covers(lane) for worker in _living([*known, *core.seen.values()], now))


async def _alive(core: Core) -> list[Worker]:
    """Active workers whose last heartbeat is not older than their lease."""
    return _living([*await core.ledger.workers(), *core.seen.values()], core.now())


def _living(heard_of: Sequence[tuple[Worker, int]], now: int) -> list[Worker]:
    return [
        worker
        for worker, at in heard_of
        if now - at <= worker.lease and worker.state is WorkerState.ACTIVE
    ]


def _unrunnable_reason(core: Core, lane_name: str) -> WaitReason:
    lane = Lane.parse(lane_name)
    known = core.service(lane.service).regions
    if lane.regions and not known.keys() & set(lane.regions):
        text = f"{lane.service} has no region {', '.join(lane.regions)} any more"
        text += f" (known: {', '.join(known) or 'none'}): add it again, or cancel the job"
        return WaitReason("unrunnable", text)
    needs = f" with {', '.join(lane.capabilities)}" if lane.capabilities else ""
    where = f" in {', '.join(lane.regions)}" if lane.regions else ""
    return WaitReason("unrunnable", f"no live worker runs {lane.service}{needs}{where}")


# --- when ----------------------------------------------------------------------------------------
def waiting_of(job: Job) -> Waiting:
    return Waiting(job.id, job.current.service, job.tier, job.model, job.ready_at)


def _eta(core: Core, job: Waiting, standing: Standing, now: int) -> Eta | None:
    """The ETA; None while it is unknown: the service is paused, or its circuit breaker is half-open
    and waits for a probe. Before `_not_before` no job starts, so the queue does not move either."""
    if any(reason.partition(":")[0] in ("paused", "probing") for reason in _stopping(standing)):
        return None
    serving = service_rate(core, job.service, free=not is_busy(standing))
    stopped = job._replace(ready_at=max(job.ready_at, _not_before(standing)))
    return core.forecasts.eta(stopped, standing, serving, now)


def service_rate(core: Core, service: str, *, free: bool) -> ServiceRate:
    """The capacity of a service. `free` is whether one of its limited slots is free."""
    limit = core.service(service).limit
    return ServiceRate(
        slots=limit or max(1, len(core.loaded)),
        cost=core.costs.get(service),
        free=free if limit else core.waiting_claims > 0,
    )


def _not_before(standing: Standing) -> int:
    """The earliest time (µs) at which any job of this service can start. An open circuit breaker
    lets no call through before its next probe. Slots that are kept for calls that were cut off are
    not free before their time. Of several regions the earliest counts."""
    busy = {_pool(reason) for reason in standing.reasons if reason.startswith("busy:")}
    times: dict[str, int] = {}
    for reason in _stopping(standing):
        code, until = reason.partition(":")[0], reason.rpartition(":")[2]
        if code not in ("closed", "kept") or (code == "kept" and _pool(reason) in busy):
            continue
        place = f"{code} regions" if "@" in reason else reason
        times[place] = min(int(until), times.get(place, int(until)))
    return max(times.values(), default=0)


FAILING_CODES = ("closed:", "probing:")


def _stopping(standing: Standing) -> list[str]:
    """The reasons that keep every job of the service from starting. Regions that do not answer do
    not, while another allowed region is only busy."""
    elsewhere = any(reason.startswith("busy:") and "@" in reason for reason in standing.reasons)
    return [reason for reason in standing.reasons if not (elsewhere and "@" in reason)]


def _pool(reason: str) -> str:
    """The pool in the reason "busy:pool:use" or "kept:pool:use:until"."""
    code, _, rest = reason.partition(":")
    return rest.rsplit(":", 2 if code == "kept" else 1)[0]


def _saved_by_skip(core: Core, job: Waiting, standing: Standing, now: int) -> Eta | None:
    """The time that the first position would save (µs). None if that is unknown: a skip does not
    help while the circuit breaker of the service is open."""
    if any(reason.startswith("closed:") for reason in _stopping(standing)):
        return None
    eta = _eta(core, job, standing, now)
    first = _eta(core, job, standing._replace(ahead=0), now)
    if eta is None or first is None:
        return None
    return Eta(max(0, eta.p50 - first.p50), max(0, eta.p90 - first.p90))


async def wait_reasons(core: Core, job: Job) -> tuple[tuple[WaitReason, ...], bool]:
    """The reasons why a queued job waits, and whether a live worker could run it."""
    now = core.now()
    standing = await core.index.standing(job.id, now)
    runnable = await is_runnable(core, job.lane)
    reasons = tuple(_reasons(core, job, standing, now)) if standing else ()
    return (reasons if runnable else (_unrunnable_reason(core, job.lane), *reasons)), runnable


# --- why -----------------------------------------------------------------------------------------
def _reasons(core: Core, job: Job, standing: Standing, now: int) -> list[WaitReason]:
    found = []
    if job.ready_at > now:
        found.append(WaitReason("delayed", f"starts in {(job.ready_at - now) / SECOND:.0f} s"))
    ahead = standing.position - 1
    if ahead > 0:
        found.append(WaitReason("ahead", f"{ahead} ahead of you"))
    if standing.behind_own:
        found.append(WaitReason("own", f"{standing.behind_own} of your own jobs are first"))
    found += [_explained(reason, now) for reason in standing.reasons if reason != "delayed"]
    lane = Lane.parse(job.lane)
    if lane.is_bound and any(reason.startswith(FAILING_CODES) for reason in standing.reasons):
        found.append(WaitReason("region", f"this job may run only in {lane.regions[0]}"))
    promotion = _next_promotion_at(core, job, standing, now)
    if promotion is not None:
        found.append(
            WaitReason("promotion", f"next promotion in {(promotion - now) / SECOND:.0f} s")
        )
    return found


def _explained(reason: str, now: int) -> WaitReason:
    code, _, rest = reason.partition(":")
    match code:
        case "busy":
            pool, _, use = rest.rpartition(":")
            return WaitReason(code, f"{pool.partition(':')[2]} {use} busy")
        case "rate":
            pool, _, use = rest.rpartition(":")
            return WaitReason(code, f"{pool.rpartition(':')[2]} {use} this minute")
        case "kept":
            pool, use, until = rest.rsplit(":", 2)
            text = f"{pool.partition(':')[2]} {use} held for {_left(until, now)} s at the most"
            text += ": a call that was cut off may still be running"
            return WaitReason("held", text, int(until))
        case "closed":
            name, _, until = rest.rpartition(":")
            text = f"{name} does not answer; next try in {_left(until, now)} s"
            return WaitReason(code, text, int(until))
        case "probing":
            name, _, _ = rest.rpartition(":")
            return WaitReason("closed", f"{name} does not answer; a call is under way to see")
        case "paused":
            return WaitReason(code, "the service is paused")
        case "user_running":
            return WaitReason(code, f"{rest} of your jobs are running, which is the most allowed")
        case _:
            return WaitReason(code, "next in line for the slots it needs")


def _left(until: str, now: int) -> str:
    return f"{max(0, int(until) - now) / SECOND:.0f}"


def _next_promotion_at(core: Core, job: Job, standing: Standing, now: int) -> int | None:
    rank = core.catalog.tiers.rank(job.tier)
    found = next_promotion(now - standing.since, core.catalog.tiers.thresholds[rank])
    if found is None or standing.position == 0 or standing.behind_own or job.band is Band.SKIP:
        return None
    return now + found[1]
