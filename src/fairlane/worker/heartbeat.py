"""The heartbeat of an SDK worker: renews the leases of its running tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from fairlane.errors import FairlaneError
from fairlane.model.worker import WorkerState
from fairlane.worker.elapsed import Moment
from fairlane.worker.task_runner import Running
from fairlane.worker.transport import RETRY_PAUSE_SECONDS, ServerAway, Transport, UnknownWorker
from fairlane.worker_protocol.messages import News, Ref

log = logging.getLogger("fairlane.worker")


class Heartbeat:
    """Sends a heartbeat every `interval` seconds. `hear` gets each response, and when its request
    was sent."""

    def __init__(
        self,
        transport: Transport,
        running: Mapping[str, Running],
        draining: asyncio.Event,
        hear: Callable[[News, Moment], None],
        interval: float,
    ) -> None:
        self._transport, self._running = transport, running
        self._draining, self._hear = draining, hear
        self.interval = interval

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.interval)
            await self.renew()

    async def renew(self) -> None:
        """Sends a heartbeat with all running tasks."""
        state = WorkerState.DRAINING if self._draining.is_set() else WorkerState.ACTIVE
        leases, sent = self.leases(), Moment.now()
        try:
            heard = await self._transport.heartbeat(state, leases)
        except (ServerAway, UnknownWorker) as error:
            log.warning("no heartbeat, trying again: %s", error)
        except FairlaneError:
            log.exception("a heartbeat was refused")
        else:
            self._renewed(leases, heard, sent)
            self._hear(heard, sent)

    async def renew_late(self, running: Running) -> None:
        """Renews the lease of a task that must not begin yet. Returns when the server has answered,
        or after a moment."""
        if running.wanted and not running.holds():
            log.warning("the lease of %s is old: asking before it starts", running.task.id)
            await self.renew()
        if not running.holds():
            await asyncio.sleep(RETRY_PAUSE_SECONDS)

    async def confirmed(self, news: News) -> tuple[News, Moment]:
        """Confirms the leases with the server, because this process may have stood still and the
        queue may have given the tasks to another worker. Also returns since when the leases are
        certainly valid."""
        leases = (*self.leases(), *(task.ref for task in news.tasks))
        while True:
            sent = Moment.now()
            try:
                heard = await self._transport.heartbeat(WorkerState.ACTIVE, leases)
            except ServerAway as error:
                log.warning("tasks are not confirmed, trying again: %s", error)
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
                continue
            except FairlaneError:
                log.exception("tasks cannot be confirmed")
                return News(), sent
            self._renewed(leases, heard, sent)
            gone = {*heard.cancel, *heard.lost}
            tasks = tuple(task for task in news.tasks if task.id not in gone)
            return heard._replace(tasks=tasks, drain=heard.drain or news.drain), sent

    def leases(self) -> tuple[Ref, ...]:
        """The leases of the tasks whose results are wanted."""
        return tuple(each.task.ref for each in self._running.values() if each.wanted)

    def _renewed(self, leases: Sequence[Ref], heard: News, sent: Moment) -> None:
        gone = {*heard.cancel, *heard.lost}
        for ref in leases:
            running = self._running.get(ref.task)
            if running is not None and running.task.ref == ref and ref.task not in gone:
                running.since = sent
