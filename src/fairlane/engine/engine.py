"""The queue engine: every operation on jobs, workers and settings, over one ledger and one
index."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence, Set
from contextlib import AbstractContextManager

from fairlane.background import end_all
from fairlane.clock import Clock
from fairlane.engine import job_actions, live_settings, queries, queue_view
from fairlane.engine.claim import claim
from fairlane.engine.core import Core, TierSource
from fairlane.engine.follow import Change, Pause, changes, events, follow
from fairlane.engine.inspection import Inspection
from fairlane.engine.instrumentation import Instrumentation
from fairlane.engine.lease_renewal import Leases
from fairlane.engine.maintenance import Maintenance
from fairlane.engine.model_times import ModelReports
from fairlane.engine.monitor import Monitor
from fairlane.engine.outbox_relay import publish_left_behind
from fairlane.engine.output_stream import OutputListener
from fairlane.engine.rebuild import join, rebuild
from fairlane.engine.restart_recovery import recover
from fairlane.engine.settle import Done, Failed, GivenBack, Report, settle
from fairlane.engine.submit import Caller, likely_tier, submit
from fairlane.engine.worker_registry import WorkerRegistry
from fairlane.engine.worker_retry_terms import refresh_declared
from fairlane.errors import FairlaneError, InvalidInput, SetupError, StaleLease, UnknownName
from fairlane.ids import Ids
from fairlane.index.index import Index, ModelReport, ModelSample, Stats
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
from fairlane.ledger.statement import MAX_TIME, CreditStatement
from fairlane.model.attempt import Attempt, Fault
from fairlane.model.catalog import Catalog
from fairlane.model.event import Event
from fairlane.model.job import Job, Json, NewJob, Progress
from fairlane.model.lease import Lease
from fairlane.model.progress import bounded
from fairlane.model.state import Move, State
from fairlane.model.worker import Worker, WorkerState
from fairlane.policy.eta_calibration import Eta
from fairlane.units import SECOND

LOCAL = Caller()
STOP_SECONDS = 5.0
"""Seconds that `stop` waits for the unfinished work of callers that have disconnected."""


class Engine:
    """The queue engine. Use it as `async with Engine(...) as engine`. Sweeps run in the background
    unless `sweeping` is False; then call `sweep` once per second of its clock. Its core, with
    ledger and index, is private: other code uses these methods and the objects `workers`, `leases`,
    `monitor`, `inspection`, `api_keys`, `bulk_records`, `webhooks`, `known_tiers` and
    `store_stats`."""

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
        self.clock = clock
        self.api_keys, self.webhooks = ledger.keys, ledger.webhooks
        self.known_tiers, self.store_stats = ledger.known_tiers, ledger.vitals
        self.bulk_records = ledger.bulks
        self._core = Core(ledger, index, catalog, clock, Ids(seed), random.Random(seed))
        self.workers, self.leases = WorkerRegistry(self._core), Leases(self._core)
        self.monitor = Monitor(self._core)
        self._fronts = queue_view.Fronts(self._core)
        self._model_reports = ModelReports(self._core)
        self._sweeping = sweeping
        self._sweeper = Maintenance(self._core)
        self._background: list[asyncio.Task[None]] = []
        self.inspection = Inspection(self._core, self._sweeper)

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the engine. When it returns, the limits are written and the index is built."""
        core = self._core
        core.reached_since = core.now()
        core.ledger_answered_at = core.clock.machine()
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
        if self._core.leftovers:
            await asyncio.wait(self._core.leftovers, timeout=STOP_SECONDS)
        await end_all([*self._background, *self._core.leftovers])
        await self._core.ledger.close()
        await self._core.index.close()

    async def sweep(self) -> None:
        """Run one round of maintenance: expired leases, promotions, the outbox, retention."""
        for each in self._sweeper.rounds:
            await self._sweeper.once(each)

    async def rebuild(self) -> None:
        """Delete the index and build it from the ledger."""
        await rebuild(self._core)

    # --- settings and surroundings -----------------------------------------------------------
    @property
    def catalog(self) -> Catalog:
        """The settings in force."""
        return self._core.catalog

    @property
    def claims_paused(self) -> str:
        """Why no job is handed out at present, although submits are accepted; empty if jobs are
        handed out."""
        if not self._core.index_reached:
            return "the index cannot be reached"
        return "" if self._core.ready.is_set() else "the index is being rebuilt"

    def instrument(self, instrumentation: Instrumentation) -> None:
        """Report metrics to this instrumentation from now on."""
        self._core.instrumentation = instrumentation

    def use_tier_source(self, source: TierSource | None) -> None:
        """Ask this source for the tiers of users from now on; None: only the ledger."""
        self._core.tier_source = source

    def explain(self, error: Exception) -> SetupError | None:
        """A SetupError that names the cause in the store and the remedy; None if the error has
        another cause."""
        return self._core.ledger.explain(error)

    # --- callers -----------------------------------------------------------------------------
    async def submit(self, job: NewJob, caller: Caller = LOCAL) -> SubmissionAccepted | Replayed:
        """Submit one job. When it returns, the job is durable and queued. Raises FairlaneError for
        invalid input or a limit."""
        (outcome,) = await submit(self._core, caller, [job])
        if isinstance(outcome, FairlaneError):
            raise outcome
        return outcome

    async def submit_many(
        self, jobs: Sequence[NewJob], caller: Caller = LOCAL
    ) -> list[SubmitOutcome]:
        """Submit several jobs. Returns each job's own outcome or error, in order."""
        return await submit(self._core, caller, jobs)

    async def cancel(self, job: str, tenant: str | None = None, op: str | None = None) -> None:
        """Cancel a job at once and finally. A running attempt is told; its result will be
        refused."""
        await job_actions.cancel(self._core, job, tenant, op)

    async def resume(self, job: str, tenant: str | None = None, op: str | None = None) -> None:
        """Continue a failed job at the step that failed; used attempts stay used."""
        await job_actions.reopen(self._core, job, tenant, Move.RESUME, op)

    async def replay(self, job: str, tenant: str | None = None, op: str | None = None) -> None:
        """Continue a failed job at the step that failed, with all attempts again."""
        await job_actions.reopen(self._core, job, tenant, Move.REPLAY, op)

    async def retry(self, cell: str, tenant: str | None = None, op: str | None = None) -> None:
        """Run a failed execution (cell) of a fan-out again, with all attempts. A fan-out that has
        ended runs again."""
        await job_actions.retry(self._core, cell, tenant, op)

    async def retry_failed(
        self, job: str, tenant: str | None = None, op: str | None = None
    ) -> list[str]:
        """Run all failed executions of a fan-out again, with all attempts, also while it runs.
        Returns the executions. The same `op` again returns none."""
        return await job_actions.retry_failed(self._core, job, tenant, op)

    async def cell_counts(self, parent: str) -> dict[State, int]:
        """How many executions of this fan-out are in each state."""
        return await self._core.ledger.cell_counts(parent)

    async def quote(self, job: str, tenant: str | None = None) -> job_actions.SkipQuote:
        """The price of a paid skip, and the time it would save."""
        return await job_actions.quote(self._core, job, tenant)

    async def skip(
        self,
        job: str,
        tenant: str | None = None,
        max_price: int | None = None,
        op: str | None = None,
    ) -> Skipped:
        """Move a job to the front of the queue for a price. Charged at most once."""
        return await job_actions.skip(self._core, job, tenant, max_price, op)

    # --- workers -----------------------------------------------------------------------------
    async def register(self, worker: Worker) -> Worker:
        return await self.workers.register(worker)

    async def heartbeat(self, worker: Worker, leases: Sequence[Lease] = ()) -> Renewal:
        """Record a heartbeat of the worker and renew its leases. Returns which leases are lost or
        cancelled."""
        until = self.clock.now() + worker.lease
        await self.workers.keep_alive([worker])
        return await self.renew(leases, until)

    async def drain(self, worker: Worker) -> Worker:
        """Drain a worker: it gets no new jobs."""
        return await self.workers.drain(worker)

    async def claim(
        self,
        worker: Worker,
        n: int = 1,
        *,
        wait: float = 0,
        call: str = "",
        stop: asyncio.Event | None = None,
    ) -> list[Lease]:
        """Claim up to n leases; n should not exceed what the worker can start now. Without a job it
        waits up to `wait` seconds (long poll), or until `stop` is set and the worker is woken.
        Leases record the `call` that claimed them."""
        if worker.state is not WorkerState.ACTIVE:
            return []
        return await claim(self._core, worker, n, wait=round(wait * SECOND), call=call, stop=stop)

    async def renew(self, leases: Sequence[Lease], until: int) -> Renewal:
        return await self.leases.renew([(lease.job, lease.token) for lease in leases], until)

    async def settle(self, reports: Sequence[Report]) -> list[Settled | Stale]:
        """Each report's own outcome, in order."""
        return await settle(self._core, reports)

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
        """Store the progress of a running step for its listeners, and wake them. A percentage
        outside 0 to 100 is moved to its nearer end, and a long text is cut."""
        told = bounded(percent, text)
        if told is None:
            raise InvalidInput("percent: a number from 0 to 100 is needed")
        progress = Progress(*told, self._core.now())
        state = await self._core.ledger.progress(lease.job, lease.token, progress)
        if state is not None:
            raise StaleLease(lease.job, state)
        self._core.subscriptions.tell([lease.job])

    def output(self, lease: Lease, first: int, chunks: Sequence[Json]) -> None:
        """Hand chunks of streamed output to the listeners of the job, in any process. `first` is
        the number of the first of them, counted from 0 within the attempt. Chunks are not stored,
        and may be lost. Returns at once."""
        self._core.outputs.send(lease, first, chunks)

    async def flush_output(self) -> None:
        """Wait until the output so far is sent, for at most 0.2 s. Call it before the attempt is
        settled."""
        await self._core.outputs.flush()

    def outputs(self, job: str, ready: asyncio.Event) -> AbstractContextManager[OutputListener]:
        """The streamed output of the job from now on. `ready` is set when there is some."""
        return self._core.outputs.listening(job, ready)

    async def loaded(self, service: str, model: str, seconds: float) -> None:
        """Record how many seconds a worker took to load a model."""
        await self._core.index.learn_times([ModelSample(service, model, round(seconds * SECOND))])

    async def model_report(self, service: str, tenant: str | None = None) -> ModelReport:
        """What is known of the models of a service: the learnt times of those that this tenant
        (None = any) has used, and where any were loaded last, as of at most a second ago."""
        return await self._model_reports.get(service, tenant)

    async def _settle(self, report: Report) -> Settled:
        (outcome,) = await settle(self._core, [report])
        if isinstance(outcome, Stale):
            raise StaleLease(report.lease.job, outcome.state or "gone")
        return outcome

    # --- looking -----------------------------------------------------------------------------
    async def get(self, job: str, tenant: str | None = None, key: str | None = None) -> Job:
        """The job, if it belongs to this tenant (None = any) and API key (None = any)."""
        return await queries.get(self._core, job, tenant, key)

    async def jobs(self, ids: Sequence[str]) -> dict[str, Job]:
        """Those of these jobs that exist, by id."""
        return await self._core.ledger.jobs(ids)

    async def payload(self, job: str) -> tuple[Json, dict[str, Json]]:
        """The job's input, and the context with the outputs of its finished steps."""
        return await self._core.ledger.payload(job)

    async def first_starts(self, jobs: Sequence[Job]) -> dict[str, int]:
        """The first start (µs) of each of these jobs that has started more than once."""
        return await queries.first_starts(self._core, jobs)

    async def view(self, job: str, tenant: str | None = None) -> queries.JobDetail:
        """The job with its position, ETA and reasons."""
        return await queries.view(self._core, job, tenant)

    async def standing(self, job: Job) -> queries.Placement | None:
        """The present position of a queued job; None if it is unknown."""
        return await queries.standing(self._core, job)

    def likely_tier(self, tenant: str, user: str | None, tier: str | None) -> str:
        """The tier that a job for this user would have, as far as that is known."""
        return likely_tier(self._core, tenant, user, tier)

    async def placement(self, accepted: SubmissionAccepted, request: NewJob) -> queries.Placement:
        """The position of a job that was just accepted."""
        return await queries.placement(self._core, accepted, request)

    async def placements(self, jobs: Sequence[Job]) -> dict[str, queries.Placement]:
        """The present positions of those of these jobs that are queued: exact near the front, as of
        at most a second ago, and estimates elsewhere."""
        return await queue_view.placements(self._core, self._fronts, jobs)

    async def service_view(self, service: str, limit: int) -> queue_view.QueueView:
        """The running jobs of a service and its first waiting jobs, at most `limit` together."""
        return await queue_view.service_view(self._core, self._fronts, service, limit)

    async def expected_waits(
        self, service: str, models: Sequence[str]
    ) -> dict[str, dict[str, Eta | None]]:
        """By tier and model, the time until a job that a new user submits now would start (µs);
        None if it is unknown."""
        return await queue_view.expected_waits(self._core, service, models)

    async def running_jobs(
        self, wanted: Filter, limit: int, service: str | None = None
    ) -> list[Job]:
        """Running jobs of this tenant, user, key and service, the longest-running first."""
        return await self._core.ledger.running_jobs(wanted, service, limit)

    async def skip_costs(self, jobs: Sequence[Job]) -> dict[str, int]:
        """The credits that were paid for the skips of these jobs, by job."""
        skipped = [job.id for job in jobs if job.paid_at > 0]
        return await self._core.ledger.skip_costs(skipped) if skipped else {}

    async def load(self) -> tuple[int, int]:
        """How many jobs are queued and how many run, of all tenants."""
        return await self._core.ledger.load()

    async def list_jobs(
        self, wanted: Filter | None = None, cursor: str | None = None, limit: int = 50
    ) -> queries.JobListPage:
        return await queries.list_jobs(self._core, wanted or Filter(), cursor, limit)

    async def attempts(self, job: str, tenant: str | None = None) -> list[Attempt]:
        return await queries.attempts(self._core, job, tenant)

    def events(self, job: str, after: int = 0) -> AsyncIterator[Event]:
        """The events after this sequence number, then each new one, until the job has ended."""
        return events(self._core, job, after)

    async def stored_events(self, job: str, after: int = 0) -> list[Event]:
        """The stored events after this sequence number."""
        return await self._core.ledger.events(job, after)

    def changes(
        self, job: str, after: int = 0, pause: Pause = asyncio.Event.wait
    ) -> AsyncGenerator[Change, None]:
        """The job with its events after this sequence number, again at every change, until it has
        ended. `pause` waits for the next change; the job is read again when it returns early."""
        return changes(self._core, job, after, pause)

    def follow(
        self, job: str, pause: Pause = asyncio.Event.wait
    ) -> AsyncGenerator[Job | None, None]:
        """Like `changes`, without the events. Yields None if the job does not exist."""
        return follow(self._core, job, pause)

    def wake(self, jobs: Iterable[str]) -> None:
        """Wake the listeners of these jobs in this process: they read the jobs again."""
        self._core.subscriptions.wake(jobs)

    async def is_runnable(self, job: Job) -> bool:
        """Whether a live worker could run the step that the job waits for."""
        return await queries.is_runnable(self._core, job.lane)

    async def overview(self) -> queries.Overview:
        return await queries.overview(self._core)

    async def index_stats(self) -> Stats:
        """The waiting jobs by lane, and the used slots."""
        return await self._core.index.stats()

    async def running_by_service(self) -> Counter[tuple[str, str | None]]:
        """The number of running jobs by service and region. Reads all running jobs."""
        return await self._core.ledger.running_in()

    def task_types(self, tenant: str) -> Set[str]:
        """The task types of this tenant's jobs, without configured services."""
        return self._core.task_types.of(tenant)

    async def wait(self, job: str) -> Job:
        """Wait until the job has ended, and return it."""
        async for _ in self.follow(job):
            pass
        return await self.get(job)

    async def check(self) -> Counts:
        """Count violations of the ledger's invariants; each count must be 0."""
        return await self._core.ledger.check()

    # --- administration ----------------------------------------------------------------------
    async def tier_of(self, user: str, tenant: str = "default") -> str | None:
        """The tier that the ledger stores for this user."""
        return await self._core.ledger.tier_of(tenant, user)

    async def set_tier(
        self, user: str, tier: str, tenant: str = "default", actor: str = "local"
    ) -> None:
        self._core.catalog.tiers.rank(tier)
        await self._core.ledger.set_tier(tenant, user, tier, self._core.now(), actor)
        self._core.tiers_of_users.pop((tenant, user), None)

    async def set_quota(
        self,
        user: str,
        *,
        pending: int | None = None,
        per_hour: int | None = None,
        tenant: str = "default",
        actor: str = "local",
    ) -> None:
        """Set a user's own limits; None = the limit of the user's tier."""
        if min(pending or 0, per_hour or 0) < 0:
            raise InvalidInput("a quota cannot be below 0")
        now = self._core.now()
        await self._core.ledger.set_quota(tenant, user, pending, per_hour, now, actor)

    async def audit(self, limit: int = 100) -> list[AuditedChange]:
        """The latest administrative changes, newest first."""
        return await self._core.ledger.audit(limit)

    async def add_credits(
        self,
        user: str,
        amount: int,
        operation: str,
        note: str = "",
        tenant: str = "default",
        actor: str = "local",
    ) -> int:
        """Add credits. Returns the new balance. Idempotent: the same operation counts once."""
        now = self._core.now()
        return await self._core.ledger.credit(tenant, user, amount, operation, now, note, actor)

    async def balance(self, user: str, tenant: str = "default") -> int:
        return await self._core.ledger.balance(tenant, user)

    async def statement(
        self,
        user: str,
        tenant: str = "default",
        *,
        since: int = 0,
        before: int = MAX_TIME,
        limit: int = 50,
    ) -> CreditStatement:
        """A user's balance and a page of its bookings, newest first. The next page is the one
        `before` the time of the last entry. Times are microseconds since 1970."""
        return await self._core.ledger.statement(tenant, user, since, before, limit)

    async def change(
        self, kind: str, name: str, setting: str, value: Json, actor: str = "local"
    ) -> None:
        """Change a live setting: `change("services", "image_gen", "limit", 2)`."""
        await live_settings.change(self._core, kind, name, setting, value, actor)

    async def purge(self, dead: Sequence[str], tenant: str, actor: str = "local") -> int:
        """Delete these dead letters. Returns how many there were."""
        return await self._core.ledger.purge(tenant, dead, self._core.now(), actor)

    async def count(self, state: State, tenant: str | None = None) -> int:
        return await self._core.ledger.count(state, tenant)
