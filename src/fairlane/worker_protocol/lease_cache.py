"""The lease cache: leases that this process granted, by token."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from fairlane.engine import Engine
from fairlane.errors import NotYours
from fairlane.ledger import rows
from fairlane.model.job import Job
from fairlane.model.lease import Lease
from fairlane.model.worker import holder, worker_of
from fairlane.worker_protocol.messages import Ref

MAX_CACHED_LEASES = 10_000
MAX_CACHED_WORKERS = 1_000


class LeaseCache:
    """Most results arrive at the process that granted the lease. Other leases are read from the
    ledger."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[str, Lease] = OrderedDict()
        self._open: dict[str, dict[str, Ref]] = {}

    def note(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            if not lease.context:  # outputs of earlier steps may be large
                self._known[lease.token] = lease._replace(input=None)
            open_here = self._open.setdefault(worker_of(lease.worker), {})
            open_here[lease.token] = Ref(lease.job, lease.token)
        while len(self._known) > MAX_CACHED_LEASES:
            self._known.popitem(last=False)
        while len(self._open) > MAX_CACHED_WORKERS:  # killed workers never report
            del self._open[next(iter(self._open))]

    def ended(self, worker: str, tokens: Iterable[str]) -> None:
        """Removes leases that were reported or lost."""
        open_here = self._open.get(worker, {})
        for token in tokens:
            open_here.pop(token, None)
        if not open_here:
            self._open.pop(worker, None)

    def of(self, worker: str) -> tuple[Ref, ...]:
        """Returns the leases that this process granted to the worker and that are not reported."""
        return tuple(self._open.get(worker, {}).values())

    async def in_call(self, worker: str, call: str) -> list[Lease]:
        """Returns the leases that this poll granted and the worker still holds, with payloads."""
        name, engine = holder(worker, call), self._engine
        found = []
        for job in await engine.workers.running_jobs(worker):
            if job.worker == name:
                sent, context = await engine.payload(job.id)
                found.append(rows.lease(job)._replace(input=sent, context=context))
        return found

    async def find(self, worker: str, refs: Sequence[Ref]) -> list[Lease | NotYours]:
        """Returns each lease as it was granted, also if it has expired: the ledger checks the
        fencing token. Returns NotYours for a lease of another worker."""
        missing = [ref.task for ref in refs if ref.lease not in self._known]
        jobs = await self._engine.jobs(missing) if missing else {}
        return [await self._find(worker, ref, jobs.get(ref.task)) for ref in refs]

    async def _find(self, worker: str, ref: Ref, job: Job | None) -> Lease | NotYours:
        known = self._known.get(ref.lease)
        if known is not None:
            mine = worker_of(known.worker) == worker and known.job == ref.task
            return known if mine else NotYours(ref.task)
        if job is not None and job.token == ref.lease:
            return await self._held(worker, job)
        return await self._over(worker, ref, job)

    async def _held(self, worker: str, job: Job) -> Lease | NotYours:
        if worker_of(job.worker or "") != worker:
            return NotYours(job.id)
        lease = rows.lease(job)
        if lease.step == 0:
            return lease
        _, context = await self._engine.payload(job.id)
        return lease._replace(context=context)

    async def _over(self, worker: str, ref: Ref, job: Job | None) -> Lease | NotYours:
        """Rebuilds a lease of this worker that has ended. Settling it does not change the job. It
        returns the job's state, and frees the slot that a cancelled attempt still holds."""
        attempts = await self._engine.attempts(ref.task) if job is not None else []
        own = [each for each in attempts if worker_of(each.worker) == worker]
        if job is None or not own:
            return NotYours(ref.task)
        ended = next((each for each in own if each.token == ref.lease), own[-1])
        return rows.lease(job)._replace(
            token=ref.lease, fence=ended.fence, step=ended.step, attempt=ended.number
        )
