"""Heartbeats of pull workers: a sign of life that renews the worker's leases."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.engine import Engine
from fairlane.errors import NotYours
from fairlane.model.worker import Worker, WorkerState, worker_of
from fairlane.worker_protocol.lease_cache import LeaseCache
from fairlane.worker_protocol.messages import News, Ref
from fairlane.worker_protocol.open_polls import OpenPolls
from fairlane.worker_protocol.worker_cache import WorkerCache


class Heartbeats:
    """Answers the heartbeats of all workers in this process."""

    def __init__(
        self,
        engine: Engine,
        open_polls: OpenPolls,
        lease_cache: LeaseCache,
        worker_cache: WorkerCache,
    ) -> None:
        self._engine, self._open_polls = engine, open_polls
        self._lease_cache, self._worker_cache = lease_cache, worker_cache

    async def renew(
        self, worker: Worker, state: WorkerState, leases: Sequence[Ref] | None = None
    ) -> News:
        """Records a sign of life and renews these leases; None = all leases of the worker."""
        engine = self._engine
        worker = await self.heard(worker.id, state)
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

    async def heard(self, name: str, state: WorkerState) -> Worker:
        """Records a sign of life. Ends the open polls of a worker that does not stay active."""
        worker = await self._engine.workers.heartbeat(name, state)
        self._worker_cache.note(worker)
        if worker.state is not WorkerState.ACTIVE:
            self._open_polls.end_of(name)
        return worker

    async def _check_own(self, worker: Worker, leases: Sequence[Ref]) -> None:
        jobs = await self._engine.jobs([ref.task for ref in leases])
        for ref in leases:
            job = jobs.get(ref.task)
            holder = job.worker if job is not None and job.token == ref.lease else None
            if holder is not None and worker_of(holder) != worker.id:
                raise NotYours(ref.task)
