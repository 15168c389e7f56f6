"""Long polling: a poll of a worker waits for work. It ends early when one of the worker's leases is
lost, when the worker is to drain, or when the client has disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from fairlane.engine import Engine
from fairlane.engine.settle import GivenBack
from fairlane.errors import NotReady
from fairlane.model.lease import Lease
from fairlane.model.service import Executor
from fairlane.model.state import State
from fairlane.model.worker import Worker, WorkerState
from fairlane.units import SECOND
from fairlane.worker_protocol.lease_cache import LeaseCache
from fairlane.worker_protocol.messages import News, PollAsk, Task, task_of
from fairlane.worker_protocol.open_polls import OpenPoll, OpenPolls
from fairlane.worker_protocol.unacknowledged import UnacknowledgedTasks
from fairlane.worker_protocol.worker_cache import WorkerCache

DEFAULT_WAIT_SECONDS, MAX_WAIT_SECONDS = 20, 60
"""How long a poll waits for work, and a caller for a slot."""

ALIVE_HEARTBEATS = 2
"""A poll counts as a sign of life for this many heartbeat intervals. A frozen worker must not get
back the task whose lease it has just lost."""

FRESH_MICROSECONDS = SECOND
"""A worker that polled less than this long ago is assumed to receive the response."""

Disconnected = Callable[[], Awaitable[None]]
"""Returns when the client has disconnected."""


class LongPoll:
    """Answers the polls of all workers in this process."""

    def __init__(
        self,
        engine: Engine,
        open_polls: OpenPolls,
        lease_cache: LeaseCache,
        worker_cache: WorkerCache,
        unacknowledged: UnacknowledgedTasks,
    ) -> None:
        self._engine, self._open_polls = engine, open_polls
        self._lease_cache, self._worker_cache = lease_cache, worker_cache
        self._unacknowledged = unacknowledged
        self._abandoned: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Wait until the leases of abandoned polls are given back."""
        await asyncio.gather(*self._abandoned, return_exceptions=True)

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
            await self._engine.workers.has_loaded(worker, *ask.model)
        refs = self._lease_cache.of(worker.id) if ask.leases is None else ask.leases
        began = self._engine.clock.now()
        with self._open_polls.open(worker.id, ask.name, refs) as open_poll:
            is_due = self._worker_cache.lease_check_due(worker.id)  # at most twice a second
            cancel, lost = await self._ended(worker, open_poll) if is_due else ((), ())
            longest = ALIVE_HEARTBEATS * worker.heartbeat / SECOND
            wait = 0 if cancel or lost else min(ask.wait, MAX_WAIT_SECONDS, longest)
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
            self._abandoned.add(left)
            left.add_done_callback(self._abandoned.discard)
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


async def _leave_on_disconnect(open_poll: OpenPoll, disconnected: Disconnected) -> None:
    await disconnected()
    open_poll.leave()
