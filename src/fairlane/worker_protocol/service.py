"""The worker protocol of pull workers: register, long poll, heartbeat, result. The HTTP routes call
this service, and so does an in-process worker. Decision 11 lists every interleaving."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from fairlane.engine import Engine
from fairlane.engine.settle import Done, Failed, GivenBack, Report
from fairlane.errors import BadRequest, InvalidInput, NotFound, NotReady, NotYours, StaleLease
from fairlane.ledger.messages import Settled, Stale
from fairlane.model.attempt import Fault, Outcome
from fairlane.model.lease import Lease
from fairlane.model.service import Executor
from fairlane.model.state import State
from fairlane.model.worker import Worker, WorkerState, worker_of
from fairlane.units import SECOND
from fairlane.worker_protocol.lease_cache import LeaseCache
from fairlane.worker_protocol.messages import (
    News,
    Offer,
    PollAsk,
    Ref,
    Result,
    Task,
    Verdict,
    task_of,
)
from fairlane.worker_protocol.open_polls import OpenPoll, OpenPolls
from fairlane.worker_protocol.unacknowledged import UnacknowledgedTasks
from fairlane.worker_protocol.worker_cache import WorkerCache

TOO_LARGE = "result_too_large"

ALIVE_HEARTBEATS = 2
"""A poll counts as a sign of life for this many heartbeat intervals. A frozen worker must not get
back the task whose lease it has just lost."""

FRESH_MICROSECONDS = SECOND
"""A worker that polled less than this long ago is assumed to receive the response."""

Disconnected = Callable[[], Awaitable[None]]
"""Returns when the client has disconnected."""


class WorkerService:
    """Call `start` before the first poll. Get a worker with `worker`, which checks that the API key
    owns it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lease_cache = LeaseCache(engine)
        self._open_polls = OpenPolls(engine)
        self._unacknowledged = UnacknowledgedTasks(engine)
        self._worker_cache = WorkerCache(engine)
        self._leftovers: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._open_polls.start()
        self._unacknowledged.start()

    def end_polls(self) -> None:
        """Ends open polls, and refuses new ones."""
        self._open_polls.end_all()

    async def stop(self) -> None:
        await self._open_polls.stop()
        await self._unacknowledged.stop()
        await asyncio.gather(*self._leftovers, return_exceptions=True)

    # --- registration ------------------------------------------------------------------------
    async def register(self, offer: Offer, key: str) -> Worker:
        worker = Worker(
            self._engine.workers.new_id(),
            services=offer.task_types,
            region=offer.region,
            capabilities=offer.capabilities,
            tiers=offer.tiers,
            capacity=offer.capacity,
            heartbeat=offer.heartbeat,
            version=offer.version,
            key=key,
            tasks=dict(offer.tasks),
        )
        return await self._engine.register(worker)

    async def worker(self, name: str, key: str) -> Worker:
        """Returns the worker with this id. Raises NotYours if another API key registered it."""
        found = await self._worker_cache.get(name)
        if found is None:
            raise NotFound("worker", name)
        if found.key != key:
            raise NotYours(name)
        self._unacknowledged.confirmed(name)
        return found

    async def drain(self, name: str) -> Worker:
        """Drains the worker: it gets no more tasks, and the next response tells it."""
        return await self._heard(name, WorkerState.DRAINING)

    async def _heard(self, name: str, state: WorkerState) -> Worker:
        worker = await self._engine.workers.hear(name, state)
        self._worker_cache.note(worker)
        if worker.state is not WorkerState.ACTIVE:
            self._open_polls.end_of(name)
        return worker

    # --- poll --------------------------------------------------------------------------------
    async def poll(
        self, worker: Worker, ask: PollAsk, disconnected: Disconnected | None = None
    ) -> News:
        """Returns when there is work, a watched lease is lost, or the worker is to drain. Returns
        empty News after `ask.wait` seconds."""
        if self._open_polls.closing:
            raise NotReady("this process is leaving; ask another one, or again in a moment")
        if ask.name:
            await self._open_polls.follow(worker.id, ask.name)
            before = [] if ask.first else await self._lease_cache.in_call(worker.id, ask.name)
            if before:
                return self._news(worker, before)
        if ask.model is not None:
            await self._engine.workers.has_loaded(worker, ask.model.name, ask.model.load)
        refs = self._lease_cache.of(worker.id) if ask.leases is None else ask.leases
        began = self._engine.clock.now()
        with self._open_polls.open(worker.id, ask.name, refs) as open_poll:
            known = not self._worker_cache.lease_check_due(
                worker.id
            )  # checked at most twice a second
            cancel, lost = ((), ()) if known else await self._ended(worker, open_poll)
            wait = (
                0 if cancel or lost else min(ask.wait, ALIVE_HEARTBEATS * worker.heartbeat / SECOND)
            )
            leases = await self._claim(worker, ask, open_poll, wait, disconnected)
            if open_poll.left:
                if not open_poll.followed:
                    await self._give_back(leases)
                return News()
            if open_poll.stop.is_set():
                cancel, lost = await self._ended_beside(leases, worker, open_poll)
        if self._engine.workers.is_draining(worker.id):
            worker = replace(worker, state=WorkerState.DRAINING)
        news = self._news(worker, leases, cancel, lost)
        if ask.confirms and leases and self._engine.clock.now() - began > FRESH_MICROSECONDS:
            self._unacknowledged.add(worker.id, leases)
            return news._replace(confirm=True)
        return news

    def _news(
        self,
        worker: Worker,
        leases: Sequence[Lease],
        cancel: tuple[str, ...] = (),
        lost: tuple[str, ...] = (),
    ) -> News:
        self._lease_cache.note(leases)
        tasks: tuple[Task, ...] = tuple(task_of(lease) for lease in leases)
        return News(tasks, cancel, lost, worker.state is not WorkerState.ACTIVE)

    async def _claim(
        self,
        worker: Worker,
        ask: PollAsk,
        open_poll: OpenPoll,
        wait: float,
        disconnected: Disconnected | None,
    ) -> list[Lease]:
        """Stops the claim when the poll ends. The claim is never cancelled: it may already have
        granted a lease."""
        engine = self._engine
        claiming = asyncio.create_task(self._work_for(worker, ask, open_poll, wait))
        watching: list[asyncio.Task[object]] = [asyncio.create_task(open_poll.stop.wait())]
        if disconnected is not None:
            watching.append(asyncio.create_task(_leave_on_disconnect(open_poll, disconnected)))
        try:
            await asyncio.wait((claiming, *watching), return_when=asyncio.FIRST_COMPLETED)
            if not claiming.done():
                with suppress(NotReady):
                    await engine.workers.wake_claims(worker)
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            open_poll.leave()
            left = asyncio.create_task(self._abandon(worker, claiming))
            self._leftovers.add(left)
            left.add_done_callback(self._leftovers.discard)
            raise
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _work_for(
        self, worker: Worker, ask: PollAsk, open_poll: OpenPoll, wait: float
    ) -> list[Lease]:
        if ask.n <= 0 or worker.state is not WorkerState.ACTIVE:
            await self._engine.clock.wait(open_poll.stop, round(wait * SECOND))
            return []
        claimer = replace(worker, excluded=self._not_pulled(worker))
        return await self._engine.claim(
            claimer, ask.n, wait=wait, call=ask.name, stop=open_poll.stop
        )

    def _not_pulled(self, worker: Worker) -> frozenset[str]:
        """Returns the services a worker without task types does not get: those whose executor is
        not `pull`."""
        if worker.services is not None:
            return frozenset()
        services = self._engine.catalog.services
        return frozenset(
            name for name, each in services.items() if each.executor is not Executor.PULL
        )

    async def _abandon(self, worker: Worker, claiming: asyncio.Task[list[Lease]]) -> None:
        with suppress(NotReady):
            await self._engine.workers.wake_claims(worker)
        await self._give_back(await claiming)

    async def _give_back(self, leases: Sequence[Lease]) -> None:
        if leases:
            await self._engine.settle([GivenBack(lease) for lease in leases])

    # --- leases ------------------------------------------------------------------------------
    async def _ended(
        self, worker: Worker, open_poll: OpenPoll
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the watched tasks that were cancelled, and those whose lease was lost in another
        way."""
        refs = list(open_poll.refs.values())
        if not refs:
            return (), ()
        still = await self._engine.leases.holding(refs)
        gone = [ref for ref in refs if ref.lease not in still and ref.lease in open_poll.refs]
        jobs = await self._engine.jobs([ref.task for ref in gone]) if gone else {}
        states = {ref.task: jobs[ref.task].state if ref.task in jobs else None for ref in gone}
        self._lease_cache.ended(worker.id, [ref.lease for ref in gone])
        cancelled = tuple(task for task, state in states.items() if state is State.CANCELLED)
        return cancelled, tuple(task for task in states if task not in cancelled)

    async def _ended_beside(
        self, leases: Sequence[Lease], worker: Worker, open_poll: OpenPoll
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Like `_ended`, for a poll with new leases. On an error the response is lost, so the new
        leases are released."""
        try:
            return await self._ended(worker, open_poll)
        except Exception:
            await self._give_back(leases)
            raise

    async def heartbeat(
        self, worker: Worker, state: WorkerState, leases: Sequence[Ref] | None = None
    ) -> News:
        """Records a sign of life and renews these leases; None = all leases of the worker."""
        engine = self._engine
        worker = await self._heard(worker.id, state)
        if leases is None:
            held = [
                Ref(job.id, job.token or "") for job in await engine.workers.running_jobs(worker.id)
            ]
            leases = list(dict.fromkeys([*held, *self._lease_cache.of(worker.id)]))
        else:
            await self._check_own(worker, leases)
        lost, cancelled = await engine.leases.renew(leases, engine.clock.now() + worker.lease)
        gone = {*lost, *cancelled}
        self._lease_cache.ended(worker.id, [ref.lease for ref in leases if ref.task in gone])
        drain = worker.state is not WorkerState.ACTIVE
        return News((), tuple(cancelled), tuple(lost), drain)

    async def _check_own(self, worker: Worker, leases: Sequence[Ref]) -> None:
        jobs = await self._engine.jobs([ref.task for ref in leases])
        for ref in leases:
            job = jobs.get(ref.task)
            holder = job.worker if job is not None and job.token == ref.lease else None
            if holder is not None and worker_of(holder) != worker.id:
                raise NotYours(ref.task)

    async def progress(self, worker: Worker, ref: Ref, percent: float, text: str) -> None:
        (lease,) = await self._lease_cache.find(worker.id, [ref])
        if isinstance(lease, NotYours):
            raise lease
        await self._engine.progress(lease, percent, text)

    # --- results -----------------------------------------------------------------------------
    async def report(self, worker: Worker, results: Sequence[Result]) -> list[Verdict]:
        """Settles the results. Returns one verdict per result, in the same order."""
        tokens = [result.ref.lease for result in results]
        self._open_polls.forget(worker.id, tokens)
        found = await self._lease_cache.find(worker.id, [result.ref for result in results])
        verdicts: dict[int, Verdict] = {}
        reports: list[tuple[int, Report]] = []
        for i, (result, lease) in enumerate(zip(results, found, strict=True)):
            if isinstance(lease, NotYours):
                verdicts[i] = Verdict(result.ref.task, None, lease.code, str(lease))
            else:
                reports.append((i, report_of(lease, result)))
        outcomes = await self._settle([report for _, report in reports])
        for (i, report), outcome in zip(reports, outcomes, strict=True):
            verdicts[i] = _verdict(report, outcome)
        self._lease_cache.ended(
            worker.id, [token for i, token in enumerate(tokens) if verdicts[i].state is not None]
        )
        return [verdicts[i] for i in range(len(results))]

    async def _settle(self, reports: Sequence[Report]) -> list[Settled | Stale | BadRequest]:
        """Settles all reports in one batch. If the batch is refused, settles them one by one."""
        if not reports:
            return []
        try:
            return list(await self._engine.settle(reports))
        except BadRequest as error:
            if len(reports) == 1:
                return [error]
            return [each for report in reports for each in await self._settle([report])]


async def _leave_on_disconnect(open_poll: OpenPoll, disconnected: Disconnected) -> None:
    await disconnected()
    open_poll.leave()


def report_of(lease: Lease, result: Result) -> Report:
    match result.status:
        case "completed":
            return Done(lease, result.output, result.metrics)
        case "released":
            return GivenBack(lease)
        case "failed":
            fault = fault_of(result)
            outcome = Outcome.TIMEOUT if fault is Fault.TIMEOUT else Outcome.FAILED
            return Failed(lease, fault, result.trouble.message, outcome=outcome)


def fault_of(result: Result) -> Fault:
    """Returns the fault that `code` names. If it names none, `retriable` decides."""
    with suppress(ValueError):
        return Fault(result.trouble.code.lower())
    return Fault.TRANSIENT if result.trouble.retriable else Fault.SERVICE_ERROR


def _verdict(report: Report, outcome: Settled | Stale | BadRequest) -> Verdict:
    task = report.lease.job
    match outcome:
        case Settled():
            too_large = isinstance(report, Done) and outcome.state is State.FAILED
            detail = "the result is too large; the task has failed" if too_large else ""
            return Verdict(task, outcome.state, TOO_LARGE if too_large else "", detail)
        case Stale():
            error = StaleLease(task, outcome.state or "gone")
            return Verdict(task, error.state, error.code, str(error))
        case BadRequest():
            return Verdict(task, None, InvalidInput.code, str(outcome))
