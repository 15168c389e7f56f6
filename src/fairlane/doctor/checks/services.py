"""Checks of services: jobs that wait although they should start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fairlane.doctor.facts import (
    Facts,
    FrontFacts,
    Here,
    LineFacts,
    RunningFacts,
    WorkerFacts,
)
from fairlane.doctor.findings import Diagnosis, check, fine, warn, wrong
from fairlane.doctor.words import count, share, waits
from fairlane.engine.inspection import FirstInLine
from fairlane.ledger.messages import LiveSlot
from fairlane.model.catalog import Catalog
from fairlane.model.job import Job
from fairlane.model.service import Executor, is_service_pool
from fairlane.model.step import Lane
from fairlane.model.worker import Worker, WorkerState, worker_of
from fairlane.units import SECOND

REAP_MICROSECONDS = 10 * SECOND
"""A lease that ended this long ago should have been taken back: the reaper runs every second."""

NOT_STARTING_MICROSECONDS = 120 * SECOND
LONG_RUN_FACTOR = 10
MIN_LONG_RUN_MICROSECONDS = 60 * SECOND

BLOCKING = frozenset(
    {"unrunnable", "delayed", "busy", "rate", "held", "closed", "paused", "user_running", "own"}
)
"""Reasons of `/explain` that keep a job from starting."""


@check(
    "no-worker",
    "services",
    (LineFacts, Here),
    "Jobs wait for a service, region or capability that no live worker offers. They stay queued "
    "until one starts. A worker that drains, or whose last three heartbeats are missing, does "
    "not count.",
    "`fairlane workers list --all` shows every worker, what it offers and when it was last heard. "
    "`fairlane jobs explain JOB` says `no live worker runs …`.",
    "Start a worker that offers it: `fairlane worker app:worker`, or `fairlane dispatch` for a "
    "service with a `url`. If no worker will ever offer it, cancel the jobs. `fairlane echo` "
    "stands in for a service during a first try.",
    public=True,
)
def no_worker(facts: Facts) -> Iterator[Diagnosis]:
    catalog = facts[Here].catalog
    waiting: Counter[tuple[str, str]] = Counter()
    for name, jobs in facts[LineFacts].unrunnable.items():
        lane = Lane.parse(name)
        if jobs and catalog.service(lane.service).executor is not Executor.CALLER:
            waiting[lane.service, _offer(lane)] += jobs
    for (service, offer), jobs in sorted(waiting.items()):
        text = f"{waits(jobs)} and no live worker runs {service}{offer}"
        yield wrong(text, jobs, "fairlane workers list --all", service)
    if not waiting:
        yield fine("every waiting job has a live worker that could run it")


def _offer(lane: Lane) -> str:
    needs = f" with {', '.join(lane.capabilities)}" if lane.capabilities else ""
    return needs + (f" in {', '.join(lane.regions)}" if lane.regions else "")


@check(
    "paused",
    "services",
    (LineFacts, Here),
    "An operator has paused the service. Its jobs wait, and running jobs continue.",
    "`fairlane services list` shows `paused` under health; `fairlane audit` shows which key "
    "paused it and when.",
    "`fairlane services unpause NAME` starts jobs again.",
    public=True,
)
def paused(facts: Facts) -> Iterator[Diagnosis]:
    for service in facts[Here].catalog.services.values():
        jobs = _waiting(facts, service.name)
        if service.paused and jobs:
            text = f"{service.name} is paused and {waits(jobs)}"
            yield warn(text, jobs, f"fairlane services unpause {service.name}", service.name)


@check(
    "breaker-open",
    "services",
    (LineFacts, Here),
    "Three calls in a row, of different jobs, got no answer, so the circuit breaker is open: "
    "jobs wait and cost no attempt, and one call at a time probes the service.",
    "`fairlane services list` shows `failing`. `fairlane jobs explain JOB` says when the next "
    "try is.",
    "Repair the service, or the way to it. The breaker closes by itself with the first answer. "
    "To send nothing meanwhile: `fairlane services pause NAME`.",
    public=True,
)
def breaker_open(facts: Facts) -> Iterator[Diagnosis]:
    here = facts[Here]
    for name, breaker in sorted(facts[LineFacts].stats.breakers.items()):
        if not (breaker.is_open and breaker.confirmed):
            continue
        service = name.partition("@")[0]
        jobs = _waiting(facts, service)
        when = (
            f"next try in {here.lasts(breaker.open_until - here.now)}"
            if breaker.open_until > here.now
            else "it is being tried"
        )
        text = f"{name} does not answer, {waits(jobs)}, {when}"
        other = [
            f"{service}@{region}"
            for region in here.catalog.service(service).regions
            if f"{service}@{region}" != name
        ]
        breakers = facts[LineFacts].stats.breakers
        elsewhere = any(not (known := breakers.get(each)) or not known.is_open for each in other)
        say = warn if not jobs or elsewhere else wrong
        yield say(text, jobs, "fairlane services list", service)


@check(
    "stuck-slot",
    "services",
    (LineFacts, RunningFacts, WorkerFacts, Here),
    "A slot of a limited service is taken and does not come free: its lease has ended and was "
    "not taken back; or its call was cut off and may still run, so a strict service keeps the "
    "slot until the call's deadline; or its job runs ten times as long as usual while others "
    "wait.",
    "`fairlane jobs show JOB` shows the running step, its worker and its deadline. `fairlane "
    "workers list --all` shows whether the worker is heard.",
    "First repair what the doctor says about the stores and about maintenance "
    "([ledger-read-only](#ledger-read-only), [index-ready](#index-ready), "
    "[maintenance-late](#maintenance-late)): slots whose lease has ended then come free by "
    "themselves, and no job has to be cancelled. If nothing else is wrong and the worker is gone, "
    "wait for the deadline, or cancel the job: `fairlane jobs cancel JOB`. Drain a worker that "
    "hangs: `fairlane workers drain WORKER`, then restart it. A `cancel_path` lets the dispatcher "
    "confirm that a call has ended.",
)
def stuck_slot(facts: Facts) -> Iterator[Diagnosis]:
    running = facts[RunningFacts]
    by_token = {job.token: job for job in running.jobs if job.token}
    heard = {worker.id: at for worker, at in facts[WorkerFacts].workers}
    found = False
    for pool, slots in sorted(_by_pool(running.slots).items()):
        service = pool.removeprefix("svc:").partition("@")[0]
        limit = _limit(facts[Here].catalog, pool)
        for slot in slots:
            job = by_token.get(slot.token)
            said = (
                _kept(facts, service, slot, len(slots), limit)
                if job is None
                else _held(
                    facts, service, job, len(slots), limit, heard.get(worker_of(job.worker or ""))
                )
            )
            if said is not None:
                found = True
                yield said
    if not found:
        taken = sum(len(each) for each in _by_pool(running.slots).values())
        yield fine(f"no slot is stuck ({count(taken, 'slot')} taken)", taken)


def _by_pool(slots: Sequence[LiveSlot]) -> dict[str, list[LiveSlot]]:
    found: dict[str, list[LiveSlot]] = {}
    for each in slots:
        if is_service_pool(each.slot.pool):
            found.setdefault(each.slot.pool, []).append(each)
    return found


def _limit(catalog: Catalog, pool: str) -> int:
    """The limit in force; 0 if there is none any more. The index may not know it."""
    service, _, region = pool.removeprefix("svc:").partition("@")
    pools = catalog.pools(service, region or None)
    return next((each.limit for each in pools if each.name == pool), 0)


def _taken(taken: int, limit: int) -> str:
    return f"{taken} of {count(limit, 'slot')} taken" if limit else f"{count(taken, 'slot')} taken"


def _kept(facts: Facts, service: str, slot: LiveSlot, taken: int, limit: int) -> Diagnosis | None:
    """The slot of a call that was cut off."""
    here, jobs = facts[Here], _waiting(facts, service)
    left = here.lasts(max(0, slot.slot.until - here.now))
    if not slot.slot.until or not jobs or not limit or taken < limit:
        return None
    text = (
        f"{waits(jobs)}, {_taken(taken, limit)}; one is held for "
        f"{left} at most, because a call of job {slot.job} was cut off and may "
        "still run"
    )
    return warn(text, left, f"fairlane jobs show {slot.job}", service)


def _held(
    facts: Facts, service: str, job: Job, taken: int, limit: int, heard_at: int | None
) -> Diagnosis | None:
    here, jobs = facts[Here], _waiting(facts, service)
    now = here.now
    worker, runs = worker_of(job.worker or ""), now - (job.started_at or now)
    usual = facts[RunningFacts].usual_seconds.get(service, 0)
    silent = (
        "was never heard"
        if heard_at is None
        else f"was last heard {here.lasts(now - heard_at)} ago"
    )
    text = (
        f"{waits(jobs)}, {_taken(taken, limit)}; one is held by job "
        f"{job.id} since {here.lasts(runs)} (usually {here.lasts(usual * SECOND)}), "
        f"worker {worker} {silent}"
    )
    if job.lease_until is not None and now - job.lease_until > REAP_MICROSECONDS:
        text += f", and the lease ended {here.lasts(now - job.lease_until)} ago"
        return wrong(text, here.lasts(runs), f"fairlane jobs show {job.id}", service)
    too_long = max(MIN_LONG_RUN_MICROSECONDS, LONG_RUN_FACTOR * usual * SECOND)
    if runs > too_long and jobs and limit and taken >= limit:
        return warn(text, here.lasts(runs), f"fairlane jobs show {job.id}", service)
    return None


@check(
    "not-starting",
    "services",
    (LineFacts, FrontFacts, WorkerFacts, RunningFacts, Here),
    "The first job in line has been ready for more than two minutes. Its service has a free "
    "slot, a live worker has room, and `/explain` has no reason. It should have started.",
    "`fairlane jobs explain JOB` for the job that the finding names. `fairlane workers list` "
    "shows whether workers poll: `last heard` is recent.",
    "Look at the log of the worker: it may hang before it polls. Restart it. If several workers "
    "are idle, run `fairlane doctor --only index-drift,index-ready`: the index may not know the "
    "job.",
)
def not_starting(facts: Facts) -> Iterator[Diagnosis]:
    here = facts[Here]
    found = [each for each in facts[FrontFacts].first if _should_run(facts, each)]
    for each in found:
        waited = here.lasts(here.now - each.ready_at)
        text = (
            f"nothing starts: {waits(_waiting(facts, each.service))}, the first one, "
            f"{each.job}, for {waited}, and a slot and a worker are free"
        )
        yield wrong(text, waited, f"fairlane doctor {each.job}", each.service)
    if not found:
        yield fine("no job waits without a reason")


def _should_run(facts: Facts, first: FirstInLine) -> bool:
    now = facts[Here].now
    if now - first.ready_at < NOT_STARTING_MICROSECONDS or not first.runnable:
        return False
    if any(reason.code in BLOCKING for reason in first.reasons):
        return False
    holds = facts[WorkerFacts].holds
    return any(
        holds[worker.id] < worker.capacity and _offers(worker, first)
        for worker, at in facts[WorkerFacts].workers
        if now - at <= worker.lease and worker.state is WorkerState.ACTIVE
    )


def _offers(worker: Worker, first: FirstInLine) -> bool:
    tier = worker.tiers is None or first.tier in worker.tiers
    return tier and (worker.services is None or first.service in worker.services)


@check(
    "queue-full",
    "services",
    (LineFacts, Here),
    "So many jobs wait that submits are refused with 429 `queue_full`: those of the lowest tier "
    "from `limits.lowest_tier_share` of the queue limit on, those of every tier at the limit.",
    "`fairlane services list` shows the waiting jobs; `waiting` in the settings is the limit.",
    "Add capacity, raise the queue limit with `fairlane services set NAME --waiting N`, or accept "
    "that callers are put off: they are told when to try again.",
    public=True,
)
def queue_full(facts: Facts) -> Iterator[Diagnosis]:
    catalog = facts[Here].catalog
    queues = [("queue", facts[LineFacts].queued, catalog.limits.waiting)]
    queues += [
        (each.name, _waiting(facts, each.name), each.waiting) for each in catalog.services.values()
    ]
    lowest = catalog.tiers.names[-1]
    for name, jobs, limit in queues:
        if limit and jobs >= catalog.limits.lowest_tier_share * limit:
            refused = "every job is" if jobs >= limit else f"{lowest} jobs are"
            text = f"{jobs:,} of at most {count(limit, 'job')} wait, so {refused} refused"
            known = catalog.knows(name) and name != "queue"
            command = (
                f"fairlane services set {name} --waiting {2 * limit}"
                if known
                else "fairlane services list"
            )
            yield warn(text, share(jobs, limit), command, name)


def _waiting(facts: Facts, service: str) -> int:
    depths = facts[LineFacts].stats.depths
    return sum(each.waiting for each in depths if each.service == service)


CHECKS = (no_worker, paused, breaker_open, stuck_slot, not_starting, queue_full)
