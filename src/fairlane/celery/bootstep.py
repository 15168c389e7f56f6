"""The step of Celery workers (bootstep): consumes the queues, sends heartbeats, reconciles."""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import bootsteps
from celery.worker import state

from fairlane.celery.fair import FairQueue
from fairlane.celery.reconciler import Reconciler, RunningTasks
from fairlane.celery.router import Balancer
from fairlane.celery.signals import lease_of_request
from fairlane.errors import StoreAway

log = logging.getLogger("fairlane.celery")


def install(balancer: Balancer) -> None:
    """Adds the step to every worker of the app. An app has one balancer: the last one."""
    balancer.app.steps["consumer"] = {
        step for step in balancer.app.steps["consumer"] if not issubclass(step, LoadLeases)
    } | {type("LoadLeases", (LoadLeases,), {"balancer": balancer})}


class LoadLeases(bootsteps.StartStopStep):  # type: ignore[misc]
    """A worker without -Q also consumes the balanced queues and the fair queue. One with -Q
    consumes what it names. The fair queue stands for the worker's own part of it."""

    balancer: Balancer

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._worker = str(consumer.hostname)
        self._fair = FairQueue(self.balancer)
        self._serves_fair = self._consume(consumer.app.amqp.queues)
        self._heart: Heart | None = None

    def _consume(self, queues: Any) -> bool:
        names, fair = self.balancer.options.queues, self.balancer.options.fair_queue
        everything = getattr(queues, "_consume_from", None) is None
        for name in names if everything else ():
            queues.select_add(name)
        serves = everything or fair in queues.consume_from
        if serves:
            queues.deselect([fair])
            queues.select_add(self._fair.worker_queue(self._worker))
        return serves

    def start(self, consumer: Any) -> None:
        """Also called when the worker has connected again: the heartbeat goes on meanwhile."""
        if self._heart is None:
            self._heart = Heart(self.balancer, consumer, self._worker)
            self._heart.start()
        self._heart.serve_fair(self._serves_fair)

    def stop(self, consumer: Any) -> None:  # noqa: ARG002 - the signature of a step
        """The worker takes no more tasks. Those that run still need the heartbeat; it ends with the
        process."""
        if self._heart is not None:
            self._heart.leave_fair()


class Heart(threading.Thread):
    """The heartbeat of one worker, in a thread: a slow broker must not stop the worker's loop."""

    def __init__(self, balancer: Balancer, consumer: Any, worker: str) -> None:
        super().__init__(name="fairlane-celery", daemon=True)
        self._balancer, self._consumer, self._worker = balancer, consumer, worker
        self._serves_fair = False
        self._fair = FairQueue(balancer)
        self._running = RunningTasks(balancer, worker)
        self._reconciler = Reconciler(balancer)
        self._due = threading.Event()

    def run(self) -> None:
        while True:
            self._due.clear()
            try:
                self._beat()
            except StoreAway:
                log.debug("no heartbeat: the lease store does not answer")
            except Exception:
                log.exception("the reconciler of Celery queues failed; it tries again")
            self._due.wait(self._balancer.options.heartbeat_seconds)

    def serve_fair(self, serves: bool) -> None:  # noqa: FBT001 - the state, not a flag
        self._serves_fair = serves
        self._due.set()

    def leave_fair(self) -> None:
        if self._serves_fair:
            self._serves_fair = False
            try:
                self._fair.leave(self._worker)
            except StoreAway:
                log.debug("the worker could not leave: the lease store does not answer")

    def _beat(self) -> None:
        self._balancer.leases.heartbeat(self._worker)
        if self._serves_fair:
            self._fair.join(self._worker, int(self._consumer.pool.num_processes or 1))
        queues = [*self._balancer.options.queues, self._fair.worker_queue(self._worker)]
        self._running.compare(self._active(), queues)
        self._reconciler.look_if_due()

    def _active(self) -> list[str]:
        leases = (lease_of_request(self._balancer, each) for each in [*state.active_requests])
        return [lease for lease in leases if lease is not None]
