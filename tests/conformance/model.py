"""What a queue promises, in memory and without any cleverness: the reference the real one is held
against. It never says which job comes next, only what every job, slot and balance must be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fairlane.model.attempt import Fault, Outcome
from fairlane.model.job import Json
from fairlane.model.lease import Lease
from fairlane.model.state import Code, State

PERMANENT = {
    Fault.INVALID_INPUT: Code.INVALID_INPUT,
    Fault.SERVICE_ERROR: Code.SERVICE_ERROR,
    Fault.RESULT_TOO_LARGE: Code.RESULT_TOO_LARGE,
    Fault.QUALITY: Code.QUALITY,
}
LIVE = (State.QUEUED, State.RUNNING)
FAILED = (State.FAILED, State.DEAD)
CHECK = "judge"
"""The service whose steps check the step before them; what they reject runs again."""


@dataclass
class ModelJob:
    """`used` counts attempts of the present step; up to `forgivable` of them may be given back
    because the service was sick. `before` counts those of the step before it. `discarded` are the
    steps whose outputs a check has rejected, as often as it has."""

    id: str
    steps: tuple[str, ...]
    user: str | None
    cap: int
    quota: int
    max_attempts: int
    timeout: int
    max_wait: int
    price: int
    ready_at: int
    parent: str | None = None
    cells: list[str] = field(default_factory=list)
    state: State = State.QUEUED
    code: Code | None = None
    step: int = 0
    used: int = 0
    forgivable: int = 0
    give_up_at: int | None = None
    lease: Lease | None = None
    lease_until: int = 0
    fence: int = 0
    paid: bool = False
    outputs: dict[int, Json] = field(default_factory=dict)
    before: int = 0
    discarded: list[int] = field(default_factory=list)

    @property
    def service(self) -> str:
        return self.steps[min(self.step, len(self.steps) - 1)]

    @property
    def delivered(self) -> int:
        return self.step - (self.service == CHECK)

    def discard(self) -> None:
        """The outputs from the present step on make room for others."""
        for step in [step for step in self.outputs if step >= self.step]:
            del self.outputs[step]
            self.discarded.append(step)


@dataclass
class Holding:
    """The pools a lease holds a slot in; with `until` they are free by themselves then."""

    service: str
    pools: set[str]
    until: int | None = None

    def is_over(self, now: int) -> bool:
        return self.until is not None and self.until <= now


class Model:
    def __init__(self, limits: dict[str, int], members: dict[str, list[str]]) -> None:
        self.limits, self.members = limits, members
        self.strict: set[str] = set()
        self.jobs: dict[str, ModelJob] = {}
        self.keys: dict[str, str] = {}
        self.balances: dict[str, int] = {}
        self.holdings: dict[str, Holding] = {}
        self.older: dict[str, set[str]] = {}
        self.ended: list[tuple[Lease, Outcome]] = []

    # --- what callers do ---------------------------------------------------------------------
    def pending(self, user: str | None) -> int:
        """What quotas count: queued or running, the cells of a fan-out instead of itself."""
        return sum(
            job.user == user and job.state in LIVE and not job.cells for job in self.jobs.values()
        )

    def over_quota(self, job: ModelJob) -> bool:
        """Whether one more job like this is too many for its user."""
        return 0 < job.quota <= self.pending(job.user)

    def submitted(self, job: ModelJob, cells: Iterable[ModelJob] = ()) -> None:
        for each in (job, *cells):
            each.give_up_at = each.ready_at + each.max_wait if each.max_wait else None
            self.jobs[each.id] = each
        job.cells = [cell.id for cell in cells]
        if job.cells:
            job.give_up_at = None

    def cancelled(self, job: ModelJob, now: int) -> None:
        for cell in [self.jobs[each] for each in job.cells]:
            if cell.state in LIVE:
                self._cancel(cell, now)
        self._cancel(job, now)
        self._cell_ended(job)

    def _cancel(self, job: ModelJob, now: int) -> None:
        if job.lease is not None:
            until = job.lease.deadline if job.service in self.strict else job.lease_until
            self._lease_ended(job, Outcome.CANCELLED)
            self._keep(self.ended[-1][0].token, until)
        self._end(job, State.CANCELLED)

    def may_reopen(self, job: ModelJob, *, fresh: bool) -> bool:
        if job.parent is not None and self.jobs[job.parent].state is State.CANCELLED:
            return False
        if job.cells and not self._failed_cells(job):  # its cells were cancelled one by one
            return False
        if fresh:
            return job.state in FAILED
        resumable = job.code in (Code.RESOURCE_EXHAUSTED, Code.CELLS_FAILED)
        return job.state is State.FAILED and resumable

    def reopened(self, job: ModelJob, now: int, *, fresh: bool) -> None:
        for each in self._failed_cells(job) if job.cells else [job]:
            if fresh or each.used >= each.max_attempts:
                each.used = each.forgivable = 0
            each.discard()
            self._queue(each, now)
            each.code = None
            if each.parent is not None:
                parent = self.jobs[each.parent]
                if parent.state not in LIVE:
                    parent.state, parent.code = State.RUNNING, None

    def _failed_cells(self, job: ModelJob) -> list[ModelJob]:
        return [self.jobs[cell] for cell in job.cells if self.jobs[cell].state in FAILED]

    def skipped(self, job: ModelJob) -> None:
        self.balances[job.user or ""] -= job.price
        job.paid = True

    # --- what workers do ---------------------------------------------------------------------
    def started(self, lease: Lease) -> None:
        job = self.jobs[lease.job]
        job.state, job.lease, job.lease_until = State.RUNNING, lease, lease.lease_until
        job.fence += 1
        job.forgivable = min(job.forgivable, lease.attempt)
        job.used = lease.attempt
        own = {f"user:{lease.user}"} if job.cap else set()
        self.holdings[lease.token] = Holding(job.service, self.pools_of(job.service) | own)
        if job.parent is not None and self.jobs[job.parent].state is State.QUEUED:
            self.jobs[job.parent].state = State.RUNNING

    def completed(self, lease: Lease, output: Json, now: int) -> None:
        job = self.jobs[lease.job]
        self._lease_ended(job, Outcome.COMPLETED)
        self._free(lease.token)
        job.outputs[lease.step] = output
        job.before = lease.attempt
        job.step += 1
        if job.step == len(job.steps):
            self._end(job, State.COMPLETED)
            self._cell_ended(job)
        else:
            job.used = job.forgivable = 0
            self._queue(job, now)

    def after_failure(self, job: ModelJob, fault: Fault) -> set[State]:
        """Where a failed attempt may leave its job."""
        if job.service == CHECK and fault is Fault.QUALITY:
            return {State.QUEUED if job.before < job.max_attempts else State.DEAD}
        if fault in PERMANENT:
            return {State.FAILED}
        if job.used < job.max_attempts:
            return {State.QUEUED}
        return {State.DEAD, State.QUEUED} if fault is Fault.UNAVAILABLE else {State.DEAD}

    def failed(
        self, lease: Lease, fault: Fault, outcome: Outcome, ready_at: int | None, *, closed: bool
    ) -> None:
        """`ready_at` None = it is over."""
        job = self.jobs[lease.job]
        self._lease_ended(job, outcome)
        if closed or job.service not in self.strict:
            self._free(lease.token)
        else:
            self._keep(lease.token, lease.deadline)
        if job.service == CHECK and fault is Fault.QUALITY:
            self._rejected(job, ready_at)
            return
        if ready_at is not None:
            job.forgivable += fault is Fault.UNAVAILABLE
            self._queue(job, ready_at)
            return
        job.code = PERMANENT.get(fault, Code.MAX_ATTEMPTS)
        self._end(job, State.FAILED if fault in PERMANENT else State.DEAD)
        self._cell_ended(job)

    def _rejected(self, job: ModelJob, ready_at: int | None) -> None:
        job.step, job.used, job.forgivable = job.step - 1, job.before, 0
        if ready_at is not None:
            job.discard()
            self._queue(job, ready_at)
            return
        job.code = Code.MAX_ATTEMPTS
        self._end(job, State.DEAD)
        self._cell_ended(job)

    def given_back(self, lease: Lease, now: int) -> None:
        job = self.jobs[lease.job]
        self._lease_ended(job, Outcome.RELEASED)
        self._free(lease.token)
        job.used -= 1
        self._queue(job, now)

    def closed_late(self, lease: Lease) -> None:
        """Whoever reports has closed its call, so what was kept for it is free."""
        self._free(lease.token)

    def renewed(self, lease: Lease, until: int, now: int) -> bool:
        job = self.jobs[lease.job]
        if job.lease is None or job.lease.token != lease.token or job.lease_until <= now:
            return False
        job.lease_until = max(job.lease_until, min(until, lease.deadline))
        return True

    # --- what time does ----------------------------------------------------------------------
    def prolonged(self, now: int, lasts: int) -> None:
        """The only process on the ledger has started: nobody could renew before."""
        for job in self.jobs.values():
            if job.lease is None:
                continue
            if job.lease.deadline > now:
                job.lease_until = max(job.lease_until, min(now + lasts, job.lease.deadline))
            elif job.lease_until <= job.lease.deadline:
                job.lease_until = now + lasts

    def overdue(self, now: int) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.lease and job.lease_until <= now]

    def slots_freed(self, now: int) -> None:
        for token, holding in list(self.holdings.items()):
            if holding.is_over(now):
                del self.holdings[token]

    def gave_up(self, now: int) -> None:
        for job in self.jobs.values():
            if job.state is State.QUEUED and job.give_up_at is not None and job.give_up_at <= now:
                job.code = Code.RESOURCE_EXHAUSTED
                self._end(job, State.FAILED)
                self._cell_ended(job)

    # --- limits ------------------------------------------------------------------------------
    def pools_of(self, service: str) -> set[str]:
        return {
            pool
            for pool, services in self.members.items()
            if service in services and self.limits[pool]
        }

    def limit_changed(self, pool: str, limit: int) -> None:
        newly = limit and not self.limits[pool]
        self.limits[pool] = limit
        if newly:
            for job in self.jobs.values():
                if job.lease is not None and job.service in self.members[pool]:
                    self.holdings[job.lease.token].pools.add(pool)
        self.older[pool] = self._holders(pool)

    def held(self, pool: str, now: int = 0) -> int:
        """The slots taken in a pool. With `now`, those that are free by themselves do not count."""
        return sum(not self.holdings[token].is_over(now) for token in self._holders(pool))

    def draining(self, pool: str) -> int:
        """Slots held since before the last change of the limit: it may be below them."""
        return len(self._holders(pool) & self.older.get(pool, set()))

    def _holders(self, pool: str) -> set[str]:
        return {token for token, holding in self.holdings.items() if pool in holding.pools}

    def has_room(self, job: ModelJob) -> bool:
        if any(self.held(pool) >= self.limits[pool] for pool in self.pools_of(job.service)):
            return False
        own = [each for each in self.jobs.values() if each.lease and each.user == job.user]
        return not job.cap or len(own) < job.cap

    # --- shared ------------------------------------------------------------------------------
    def _queue(self, job: ModelJob, ready_at: int) -> None:
        job.state, job.ready_at = State.QUEUED, ready_at
        patient = not job.max_wait or job.service == CHECK
        job.give_up_at = None if patient else ready_at + job.max_wait

    def _end(self, job: ModelJob, state: State) -> None:
        job.state, job.give_up_at = state, None
        kept = job.step if state is State.CANCELLED else job.delivered
        if job.paid and kept == 0:
            self.balances[job.user or ""] += job.price
            job.paid = False

    def _lease_ended(self, job: ModelJob, outcome: Outcome) -> None:
        assert job.lease is not None
        self.ended.append((job.lease, outcome))
        job.lease = None

    def _cell_ended(self, job: ModelJob) -> None:
        if job.parent is None:
            return
        parent = self.jobs[job.parent]
        cells = [self.jobs[each] for each in parent.cells]
        if parent.state in LIVE and not any(cell.state in LIVE for cell in cells):
            done = all(cell.state is State.COMPLETED for cell in cells)
            parent.state = State.COMPLETED if done else State.FAILED
            parent.code = None if done else Code.CELLS_FAILED

    def _free(self, token: str) -> None:
        self.holdings.pop(token, None)

    def _keep(self, token: str, until: int) -> None:
        holding = self.holdings[token]
        holding.pools = {pool for pool in holding.pools if not pool.startswith("user:")}
        holding.until = until
        if not holding.pools:
            del self.holdings[token]
