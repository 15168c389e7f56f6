"""The engine: every verb, over one ledger and one index."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import replace

from fairlane.background import end_all
from fairlane.clock import Clock
from fairlane.engine import job_actions, live_settings, queries
from fairlane.engine.claim import claim
from fairlane.engine.core import Core
from fairlane.engine.follow import Change, Pause, changes, events, follow
from fairlane.engine.maintenance import Maintenance
from fairlane.engine.rebuild import join, publish_left_behind, rebuild
from fairlane.engine.renew import renew
from fairlane.engine.restart_recovery import recover
from fairlane.engine.settle import Done, Failed, GivenBack, Report, settle
from fairlane.engine.submit import Caller, likely_tier, submit
from fairlane.engine.worker_retry_terms import refresh_declared
from fairlane.errors import FairlaneError, InvalidInput, SetupError, StaleLease, UnknownName
from fairlane.ids import Ids
from fairlane.index.index import Index
from fairlane.ledger.ledger import Ledger
from fairlane.ledger.messages import (
    AuditedChange,
    Counts,
    Filter,
    Renewal,
    Replayed,
    Settled,
    Skipped,
    Stale,
    SubmissionAccepted,
    SubmitOutcome,
)
from fairlane.model.attempt import Attempt, Fault
from fairlane.model.catalog import Catalog
from fairlane.model.event import Event
from fairlane.model.job import Job, Json, NewJob, Progress
from fairlane.model.lease import Lease
from fairlane.model.state import Move, State
from fairlane.model.worker import Worker, WorkerState
from fairlane.units import SECOND

LOCAL = Caller()
STOP_SECONDS = 5.0
"""Seconds in which what callers have left is finished when it stops."""


class Engine:
    """Use it as `async with Engine(...) as engine`. Sweeps run by themselves unless `sweeping` is
    off; then call `sweep`, once a second of its clock."""

    def __init__(
        self,
        ledger: Ledger,
        index: Index,
        catalog: Catalog,
        clock: Clock,
        *,
        sweeping: bool = True,
        seed: int | None = None,
    ) -> None:
        self.core = Core(ledger, index, catalog, clock, Ids(seed), random.Random(seed))
        self._sweeping = sweeping
        self._sweeper = Maintenance(self.core)
        self._background: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Ready when it returns: limits written, index built from the ledger."""
        core = self.core
        core.reached_since = core.now()
        core.touched = core.clock.machine()
        try:
            await live_settings.start(core)
            await join(core)
            await publish_left_behind(core)
            await recover(core)
            await refresh_declared(core)
        except UnknownName as error:
            await self.stop()
            raise SetupError(
                f"{error}; but there are jobs that need it: keep it in the settings until they are "
                f"done (a file says [services.{error.name}]), or begin with another ledger"
            ) from error
        except Exception as error:
            await self.stop()
            raise core.ledger.explain(error) or error from error
        except BaseException:
            await self.stop()
            raise
        if self._sweeping:
            self._background = [
                asyncio.create_task(self._sweeper.run(each)) for each in self._sweeper.rounds
            ]

    async def stop(self) -> None:
        if self.core.leftovers:
            await asyncio.wait(self.core.leftovers, timeout=STOP_SECONDS)
        await end_all([*self._background, *self.core.leftovers])
        await self.core.ledger.close()
        await self.core.index.close()

    async def sweep(self) -> None:
        """What has to happen by itself: expired leases, promotions, leftovers, retention."""
        for each in self._sweeper.rounds:
            await each()

    async def rebuild(self) -> None:
        """Throw the index away and build it from the ledger."""
        await rebuild(self.core)

    # --- callers -----------------------------------------------------------------------------
    async def submit(self, job: NewJob, caller: Caller = LOCAL) -> SubmissionAccepted | Replayed:
        """Durable and in line when it returns. Raises what is wrong, or which limit holds."""
        (outcome,) = await submit(self.core, caller, [job])
        if isinstance(outcome, FairlaneError):
            raise outcome
        return outcome

    async def submit_many(
        self, jobs: Sequence[NewJob], caller: Caller = LOCAL
    ) -> list[SubmitOutcome]:
        """Each job's own outcome; an error stands in its place."""
        return await submit(self.core, caller, jobs)

    async def cancel(self, job: str, tenant: str | None = None, op: str | None = None) -> None:
        """At once and for good; a running attempt is told, its result will be refused."""
        await job_actions.cancel(self.core, job, tenant, op)

    async def resume(self, job: str, tenant: str | None = None, op: str | None = None) -> None:
        """Go on at the step that failed, with the attempts already used."""
        await job_actions.reopen(self.core, job, tenant, Move.RESUME, op)

    async def replay(self, job: str, tenant: str | None = None, op: str | None = None) -> None:
        """Go on at the step that failed, with all attempts again."""
        await job_actions.reopen(self.core, job, tenant, Move.REPLAY, op)

    async def quote(self, job: str, tenant: str | None = None) -> job_actions.SkipQuote:
        """What a skip would cost and bring."""
        return await job_actions.quote(self.core, job, tenant)

    async def skip(
        self,
        job: str,
        tenant: str | None = None,
        max_price: int | None = None,
        op: str | None = None,
    ) -> Skipped:
        """Pay and go to the very front. Charged at most once."""
        return await job_actions.skip(self.core, job, tenant, max_price, op)

    # --- workers -----------------------------------------------------------------------------
    async def register(self, worker: Worker) -> Worker:
        for tier in worker.tiers or ():
            self.core.catalog.tiers.rank(tier)
        if worker.state is WorkerState.ACTIVE:
            self.core.draining.discard(worker.id)
        else:
            self.core.seen.pop(worker.id, None)
        await self.core.ledger.put_worker(worker, self.core.now())
        if worker.tasks:
            await refresh_declared(self.core)
        return worker

    async def heartbeat(self, worker: Worker, leases: Sequence[Lease] = ()) -> Renewal:
        """The worker lives and its leases go on; which of them are lost or cancelled."""
        now = self.core.now()
        await self.core.ledger.put_worker(worker, now)
        return await self.renew(leases, now + worker.lease)

    async def drain(self, worker: Worker) -> Worker:
        """No new work for it."""
        self.core.draining.add(worker.id)
        await self.core.index.dismiss(worker.id)
        return await self.register(replace(worker, state=WorkerState.DRAINING))

    async def rouse(self, worker: Worker) -> None:
        """Its waiting claims look again: something will be due sooner than they know."""
        await self.core.index.dismiss(worker.id)

    async def claim(
        self,
        worker: Worker,
        n: int = 1,
        *,
        wait: float = 0,
        call: str = "",
        stop: asyncio.Event | None = None,
    ) -> list[Lease]:
        """Up to n leases; n should never be more than the worker can start now. `wait` seconds at
        the longest if there is nothing, or until `stop` is set and the worker roused. Leases
        remember the `call` they were taken in."""
        if worker.state is not WorkerState.ACTIVE:
            return []
        return await claim(self.core, worker, n, wait=round(wait * SECOND), call=call, stop=stop)

    async def renew(self, leases: Sequence[Lease], until: int) -> Renewal:
        return await renew(self.core, [(lease.job, lease.token) for lease in leases], until)

    async def holding(self, leases: Sequence[Lease]) -> frozenset[str]:
        """The tokens of those that still hold. Reads only: cheap enough to ask twice a second."""
        if not leases:
            return frozenset()
        return await self.core.ledger.holding([(lease.job, lease.token) for lease in leases])

    async def settle(self, reports: Sequence[Report]) -> list[Settled | Stale]:
        """Each report's own outcome, in order."""
        return await settle(self.core, reports)

    async def complete(self, lease: Lease, output: Json = None, metrics: Json = None) -> Settled:
        return await self._settle(Done(lease, output, metrics))

    async def fail(
        self,
        lease: Lease,
        fault: Fault = Fault.TRANSIENT,
        message: str = "",
        *,
        retry_after: float = 0,
        closed: bool = True,
    ) -> Settled:
        after = round(retry_after * SECOND)
        return await self._settle(Failed(lease, fault, message, after, closed))

    async def give_back(self, lease: Lease, *, closed: bool = True) -> Settled:
        return await self._settle(GivenBack(lease, closed))

    async def progress(self, lease: Lease, percent: float, text: str = "") -> None:
        progress = Progress(percent, text, self.core.now())
        state = await self.core.ledger.progress(lease.job, lease.token, progress)
        if state is not None:
            raise StaleLease(lease.job, state)
        self.core.subscriptions.tell([lease.job])

    async def loaded(self, service: str, model: str, seconds: float) -> None:
        """A worker took this long to load a model."""
        await self.core.index.learn_load(service, model, round(seconds * SECOND))

    async def _settle(self, report: Report) -> Settled:
        (outcome,) = await settle(self.core, [report])
        if isinstance(outcome, Stale):
            raise StaleLease(report.lease.job, outcome.state or "gone")
        return outcome

    # --- looking -----------------------------------------------------------------------------
    async def get(self, job: str, tenant: str | None = None) -> Job:
        return await queries.get(self.core, job, tenant)

    async def view(self, job: str, tenant: str | None = None) -> queries.JobDetail:
        """The job with its position, ETA and reasons."""
        return await queries.view(self.core, job, tenant)

    async def standing(self, job: Job) -> queries.Placement | None:
        """Where a queued job stands now."""
        return await queries.standing(self.core, job)

    def likely_tier(self, tenant: str, user: str | None, tier: str | None) -> str:
        """The tier that a job for this user would have, as far as that is known."""
        return likely_tier(self.core, tenant, user, tier)

    async def placement(self, accepted: SubmissionAccepted, request: NewJob) -> queries.Placement:
        """Where a job stands that was just accepted."""
        return await queries.placement(self.core, accepted, request)

    async def list_jobs(
        self, wanted: Filter | None = None, cursor: str | None = None, limit: int = 50
    ) -> queries.JobListPage:
        return await queries.list_jobs(self.core, wanted or Filter(), cursor, limit)

    async def attempts(self, job: str, tenant: str | None = None) -> list[Attempt]:
        return await queries.attempts(self.core, job, tenant)

    def events(self, job: str, after: int = 0) -> AsyncIterator[Event]:
        """What has happened after that number, then what happens, until the job is over."""
        return events(self.core, job, after)

    def changes(
        self, job: str, after: int = 0, pause: Pause = asyncio.Event.wait
    ) -> AsyncGenerator[Change, None]:
        """The job with its events after that number, again with every change, until it is over.
        `pause` waits for the next change; when it returns early, the job is read again, too."""
        return changes(self.core, job, after, pause)

    def follow(
        self, job: str, pause: Pause = asyncio.Event.wait
    ) -> AsyncGenerator[Job | None, None]:
        """As `changes`, without the events. None if there is no such job."""
        return follow(self.core, job, pause)

    def wake(self, jobs: Iterable[str]) -> None:
        """Those who follow these jobs in this process look at them again."""
        self.core.subscriptions.wake(jobs)

    async def is_runnable(self, job: Job) -> bool:
        """Whether a worker that takes work could run the step that the job waits for."""
        return await queries.is_runnable(self.core, job.lane)

    async def overview(self) -> queries.Overview:
        return await queries.overview(self.core)

    async def wait(self, job: str) -> Job:
        """The job when it is over."""
        async for _ in self.follow(job):
            pass
        return await self.get(job)

    async def check(self) -> Counts:
        """The ledger's own promises; each count must be 0."""
        return await self.core.ledger.check()

    # --- administration ----------------------------------------------------------------------
    async def set_tier(
        self, user: str, tier: str, tenant: str = "default", actor: str = "local"
    ) -> None:
        self.core.catalog.tiers.rank(tier)
        await self.core.ledger.set_tier(tenant, user, tier, self.core.now(), actor)
        self.core.tiers_of_users.pop((tenant, user), None)

    async def set_quota(
        self,
        user: str,
        *,
        pending: int | None = None,
        per_hour: int | None = None,
        tenant: str = "default",
        actor: str = "local",
    ) -> None:
        """Limits of this user's own; None = their tier's."""
        if min(pending or 0, per_hour or 0) < 0:
            raise InvalidInput("a quota cannot be below 0")
        now = self.core.now()
        await self.core.ledger.set_quota(tenant, user, pending, per_hour, now, actor)

    async def audit(self, limit: int = 100) -> list[AuditedChange]:
        """The latest administrative changes, newest first."""
        return await self.core.ledger.audit(limit)

    async def add_credits(
        self,
        user: str,
        amount: int,
        operation: str,
        note: str = "",
        tenant: str = "default",
        actor: str = "local",
    ) -> int:
        """The balance afterwards. The same operation again changes nothing."""
        now = self.core.now()
        return await self.core.ledger.credit(tenant, user, amount, operation, now, note, actor)

    async def balance(self, user: str, tenant: str = "default") -> int:
        return await self.core.ledger.balance(tenant, user)

    async def change(
        self, kind: str, name: str, setting: str, value: Json, actor: str = "local"
    ) -> None:
        """A live setting: `change("services", "image_gen", "limit", 2)`."""
        await live_settings.change(self.core, kind, name, setting, value, actor)

    async def purge(self, dead: Sequence[str], tenant: str, actor: str = "local") -> int:
        """These dead letters are gone; how many there were."""
        return await self.core.ledger.purge(tenant, dead, self.core.now(), actor)

    async def count(self, state: State, tenant: str | None = None) -> int:
        return await self.core.ledger.count(state, tenant)
