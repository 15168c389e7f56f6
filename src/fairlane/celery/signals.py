"""Celery signals that move leases: reserved → pending → running → gone. A handler that fails
changes no load for long: the reconciler finds what it missed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, ParamSpec
from weakref import WeakValueDictionary

from celery import signals as celery_signals
from celery.utils.time import maybe_make_aware
from kombu.entity import Queue

from fairlane.celery.fair import FairQueue
from fairlane.celery.leases import lease_of, new_nonce
from fairlane.celery.router import LEASE_HEADER, Balancer
from fairlane.errors import StoreAway

P = ParamSpec("P")

DUE_HEADER = "fairlane_due"


def connect(balancer: Balancer) -> None:
    for signal, handler in _handlers(balancer):
        signal.connect(handler, weak=False, dispatch_uid=(id(balancer), handler.__name__))


def disconnect(balancer: Balancer) -> None:
    for signal, handler in _handlers(balancer):
        signal.disconnect(dispatch_uid=(id(balancer), handler.__name__))


def _handlers(balancer: Balancer) -> list[tuple[Any, Callable[..., None]]]:
    handlers = Handlers(balancer)
    return [
        (celery_signals.before_task_publish, handlers.before_task_publish),
        (celery_signals.after_task_publish, handlers.after_task_publish),
        (celery_signals.task_prerun, handlers.task_prerun),
        (celery_signals.task_postrun, handlers.task_postrun),
        (celery_signals.task_received, handlers.task_received),
        (celery_signals.task_failure, handlers.task_failure),
        (celery_signals.task_retry, handlers.task_retry),
        (celery_signals.task_revoked, handlers.task_revoked),
    ]


def forgiving(handler: Callable[P, None]) -> Callable[P, None]:
    """A handler for which the absence of the store is no error."""

    @wraps(handler)
    def handle(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            handler(*args, **kwargs)
        except StoreAway:
            return

    return handle


class Handlers:
    """The signal handlers of one balancer. Signals reach the handlers of every app in a process:
    each looks whether the queue or the task is its own."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._options, self._leases = balancer.options, balancer.leases
        self._fair = FairQueue(balancer)
        self._received: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._started: dict[str, float] = {}
        """Leases whose task runs in this process, so that `postrun` follows."""

    # --- in the process that publishes -----------------------------------------------------------
    @forgiving
    def before_task_publish(
        self,
        sender: str,
        headers: dict[str, Any],
        properties: dict[str, Any],
        routing_key: str,
        declare: Any = None,
        **_: Any,
    ) -> None:
        """Writes the lease into the message. A retry brings the header of the attempt before it,
        which is replaced: every publication has its own lease."""
        queue = _queue_of(declare, routing_key)
        publishing = self._balancer.publishing
        lease = publishing.take_reserved(queue)
        if lease is not None:
            headers[LEASE_HEADER] = lease
            publishing.sending(lease)
            return
        if queue == self._options.fair_queue:
            properties["priority"] = 0  # else the broker puts it into another list
            headers[LEASE_HEADER] = lease_of(queue, new_nonce())
            headers.pop(DUE_HEADER, None)
            if headers.get("eta"):
                headers[DUE_HEADER] = self._epoch(headers["eta"])
            return
        if not self._options.counts(queue):
            before = str(headers.get(LEASE_HEADER))
            if self._options.counts(
                before.rpartition("|")[0]
            ):  # a retry that leaves the balanced queues
                del headers[LEASE_HEADER]
            return
        headers[LEASE_HEADER] = lease = lease_of(queue, new_nonce())
        returned = publishing.take_unpublished()
        publishing.sending(lease)
        self._leases.register(lease, sender, returned)

    @forgiving
    def after_task_publish(self, headers: dict[str, Any], **_: Any) -> None:
        lease = headers.get(LEASE_HEADER)
        if self._balancer.publishing.sent(lease):
            return
        if str(lease).startswith(f"{self._options.fair_queue}|"):
            self._fair.release()

    # --- in the process that runs ----------------------------------------------------------------
    @forgiving
    def task_prerun(self, task: Any, **_: Any) -> None:
        lease = self._lease(task, task.request)
        if lease is not None:
            self._started[lease] = time.monotonic()
            self._leases.start(lease, str(task.request.hostname))

    @forgiving
    def task_postrun(self, task: Any, state: str, retval: Any = None, **_: Any) -> None:
        lease = self._lease(task, task.request)
        if lease is None:
            return
        seconds = time.monotonic() - self._started.pop(lease, time.monotonic())
        requeued = state == "REJECTED" and getattr(retval, "requeue", False)
        if requeued and not self._fair.holds(lease):
            self._leases.requeue(lease)  # the same message waits again, without a new publish
        else:
            self._leases.finish(lease, task.name, seconds)
        self._next_fair(lease)

    # --- in the parent process of a pool ---------------------------------------------------------
    def task_received(self, request: Any, **_: Any) -> None:
        lease = lease_of_request(self._balancer, request)
        if lease is not None:
            self._received[lease] = request

    @forgiving
    def task_failure(self, task_id: str, **_: Any) -> None:
        """A child was lost or reached its hard time limit, so that no `postrun` follows. The signal
        brings no request: it is found by its id among those that have started."""
        for lease, request in [*self._received.items()]:
            if request.id == task_id and request.time_start and lease not in self._started:
                self._end(lease)

    @forgiving
    def task_retry(self, sender: Any, request: Any, **_: Any) -> None:
        """A worker gave the message back (connection loss), or published the retry of a lost child.
        Whether the old message waits again is for the reconciler to see."""
        lease = self._lease(sender, request)
        if lease is not None and lease not in self._started:
            self._leases.requeue(lease)
            self._next_fair(lease)

    @forgiving
    def task_revoked(self, sender: Any, request: Any, **_: Any) -> None:
        lease = self._lease(sender, request)
        if lease is not None:
            self._end(lease)

    def _end(self, lease: str) -> None:
        self._leases.finish(lease)
        self._next_fair(lease)

    def _next_fair(self, lease: str) -> None:
        if self._fair.holds(lease):
            self._fair.release()

    # --- leases of requests ----------------------------------------------------------------------
    def _lease(self, task: Any, request: Any) -> str | None:
        if task.app is not self._balancer.app or request.is_eager:
            return None
        return lease_in(self._balancer, request.get(LEASE_HEADER), request)

    def _epoch(self, eta: str) -> float:
        when = datetime.fromisoformat(eta)
        return float(maybe_make_aware(when, self._balancer.app.timezone).timestamp())


def _queue_of(declare: Any, routing_key: str) -> str:
    """The queue of a publish. With a topic exchange its name is not the routing key."""
    for each in declare or ():
        if isinstance(each, Queue):
            return str(each.name)
    return routing_key


def lease_of_request(balancer: Balancer, request: Any) -> str | None:
    """The lease of a request that the parent process of a pool holds."""
    return lease_in(balancer, request.request_dict.get(LEASE_HEADER), request)


def lease_in(balancer: Balancer, header: Any, request: Any) -> str | None:
    """The lease of a request, by the header of its message. A message that another program
    published has none: its task id stands for it. A fair task's lease is on the queue of its
    worker."""
    options = balancer.options
    routing_key = str((request.delivery_info or {}).get("routing_key"))
    queue, _, nonce = str(header or "").rpartition("|")
    if not header:
        queue, nonce = routing_key, f"task:{request.id}"
    if queue == options.fair_queue:
        return lease_of(f"{options.fair_queue}.{request.hostname}", nonce)
    return lease_of(queue, nonce) if options.counts(queue) else None
