"""The worker protocol of pull workers: register, long poll, heartbeat, result. The HTTP routes call
this service, and so does an in-process worker. Decision 11 lists every interleaving."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.engine import Engine
from fairlane.engine.settle import Done, Failed, GivenBack, Report
from fairlane.errors import BadRequest, InvalidInput, NotFound, NotYours, StaleLease
from fairlane.ledger.messages import Settled, Stale
from fairlane.model.attempt import Fault, Outcome, fault_named
from fairlane.model.job import Json
from fairlane.model.lease import Lease
from fairlane.model.state import State
from fairlane.model.worker import Worker, WorkerState
from fairlane.worker_protocol.heartbeat import Heartbeats
from fairlane.worker_protocol.lease_cache import LeaseCache
from fairlane.worker_protocol.long_poll import Disconnected, LongPoll
from fairlane.worker_protocol.messages import (
    News,
    Offer,
    PollAsk,
    Ref,
    Result,
    Verdict,
)
from fairlane.worker_protocol.open_polls import OpenPolls
from fairlane.worker_protocol.unacknowledged import UnacknowledgedTasks
from fairlane.worker_protocol.worker_cache import WorkerCache

TOO_LARGE = "result_too_large"


class WorkerService:
    """Call `start` before the first poll. Get a worker with `worker`, which checks that the API key
    owns it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lease_cache = LeaseCache(engine)
        self._open_polls = OpenPolls(engine)
        self._unacknowledged = UnacknowledgedTasks(engine)
        self._worker_cache = WorkerCache(engine)
        self._heartbeats = Heartbeats(
            engine, self._open_polls, self._lease_cache, self._worker_cache
        )
        self._long_poll = LongPoll(
            engine, self._open_polls, self._lease_cache, self._worker_cache, self._unacknowledged
        )

    def start(self) -> None:
        self._open_polls.start()
        self._unacknowledged.start()

    def end_polls(self) -> None:
        """Ends open polls, and refuses new ones."""
        self._open_polls.end_all()

    async def stop(self) -> None:
        await self._open_polls.stop()
        await self._unacknowledged.stop()
        await self._long_poll.stop()

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
            name=offer.name,
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
        return await self._heartbeats.heard(name, WorkerState.DRAINING)

    async def poll(
        self, worker: Worker, ask: PollAsk, disconnected: Disconnected | None = None
    ) -> News:
        return await self._long_poll.poll(worker, ask, disconnected)

    # --- leases ------------------------------------------------------------------------------
    async def heartbeat(
        self, worker: Worker, state: WorkerState, leases: Sequence[Ref] | None = None
    ) -> News:
        return await self._heartbeats.renew(worker, state, leases)

    async def progress(self, worker: Worker, ref: Ref, percent: float, text: str) -> None:
        (lease,) = await self._lease_cache.find(worker.id, [ref])
        if isinstance(lease, NotYours):
            raise lease
        await self._engine.progress(lease, percent, text)

    async def output(self, worker: Worker, ref: Ref, first: int, chunks: Sequence[Json]) -> None:
        """Hands streamed output to the listeners of the task. When it returns, the output is sent,
        or dropped."""
        (lease,) = await self._lease_cache.find(worker.id, [ref])
        if isinstance(lease, NotYours):
            raise lease
        self._engine.output(lease, first, chunks)
        await self._engine.flush_output()

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


def report_of(lease: Lease, result: Result) -> Report:
    match result.status:
        case "completed":
            return Done(lease, result.output, result.metrics)
        case "released":
            return GivenBack(lease)
        case "failed":
            fault = fault_named(result.trouble.code, result.trouble.retriable)
            outcome = Outcome.TIMEOUT if fault is Fault.TIMEOUT else Outcome.FAILED
            return Failed(lease, fault, result.trouble.message, outcome=outcome)


def _verdict(report: Report, outcome: Settled | Stale | BadRequest) -> Verdict:
    task = report.lease.job
    match outcome:
        case Settled():
            work = report.lease.at.quality_check is None  # a check may fail its job
            too_large = work and isinstance(report, Done) and outcome.state is State.FAILED
            detail = "the result is too large; the task has failed" if too_large else ""
            return Verdict(task, outcome.state, TOO_LARGE if too_large else "", detail)
        case Stale():
            error = StaleLease(task, outcome.state or "gone")
            return Verdict(task, error.state, error.code, str(error))
        case BadRequest():
            return Verdict(task, None, InvalidInput.code, str(outcome))
