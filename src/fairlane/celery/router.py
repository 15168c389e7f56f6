"""The Celery router: each task goes to the least loaded of the queues (join the shortest queue)."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from fairlane.celery.leases import LeaseStore, connect_to, lease_of, new_nonce
from fairlane.celery.options import (
    DEFAULT_PREFIX,
    DEFAULT_QUEUES,
    DEFAULT_RESERVE_AHEAD,
    Connect,
    Options,
    queue_names,
)
from fairlane.celery.places import ReservedPlaces
from fairlane.errors import StoreAway

log = logging.getLogger("fairlane.celery")

LEASE_HEADER = "fairlane_lease"
DESTINATION = ("queue", "exchange", "routing_key")
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")


class Balancer:
    """Routes tasks of one Celery app, and knows what this thread is about to publish. Celery calls
    it as a router (`task_routes`)."""

    def __init__(self, app: Any, options: Options) -> None:
        self.app, self.options = app, options
        self.leases = LeaseStore(options, self._connect)
        self.publishing = Publishing()
        self._places_by_pid: dict[int, ReservedPlaces] = {}

    def __call__(
        self,
        name: str,
        args: Any = None,  # noqa: ARG002 - the signature of a Celery router
        kwargs: Any = None,  # noqa: ARG002
        options: dict[str, Any] | None = None,
        task: Any = None,  # noqa: ARG002
        **_: Any,
    ) -> dict[str, Any] | None:
        """The route of a task. Never raises: its errors would reach the caller of `apply_async`."""
        try:
            given = {} if options is None else options
            if not self.options.selects(name) or self._has_destination(given):
                return None
            return {"queue": self.choose(name)}
        except Exception:
            log.exception("the router of Celery task %s failed; its default queue is used", name)
            return None

    def choose(self, task: str) -> str:
        """Reserves a place in the least loaded queue for the next publish of this thread. Without
        the store: a random queue, which the reconciler counts later."""
        failed = self.publishing.take_unpublished()
        try:
            lease = self._places().take(task, failed)
        except StoreAway:
            nonce = new_nonce()
            lease = lease_of(self.options.hashed(nonce), nonce)
        self.publishing.reserved([lease])
        return lease.rpartition("|")[0]

    def choose_many(self, task: str, count: int) -> list[str]:
        nonces = [new_nonce() for _ in range(count)]
        failed = self.publishing.take_unpublished()
        try:
            queues = self.leases.reserve(task, nonces, failed)
        except StoreAway:
            queues = [self.options.hashed(nonce) for nonce in nonces]
        self.publishing.reserved(map(lease_of, queues, nonces))
        return queues

    def close(self) -> None:
        """Gives back what is reserved ahead, and closes the client of this process. The next
        publish opens another one."""
        self._places().close()
        self.leases.close()

    def _places(self) -> ReservedPlaces:
        """Those of this process: a forked child must not publish with the leases of its parent."""
        pid = os.getpid()
        places = self._places_by_pid.get(pid)
        if places is None:
            places = self._places_by_pid.setdefault(pid, ReservedPlaces(self.leases))
        return places

    def _has_destination(self, options: dict[str, Any]) -> bool:
        """Whether the caller chose the queue. A retry names the queue of the attempt before it;
        with `rebalance_retries` that name is removed here, else it would override the router."""
        if not any(options.get(name) for name in DESTINATION):
            return False
        headers = options.get("headers") or {}
        queue, _, _ = str(headers.get(LEASE_HEADER, "")).rpartition("|")
        if not self.options.rebalance_retries or not self.options.counts(queue):
            return True
        for name in DESTINATION:
            options.pop(name, None)
        return False

    def broker_url(self) -> str:
        url = str(self.app.connection_for_write().as_uri(include_password=True))
        return url.replace("redis+socket://", "unix://", 1)

    def has_redis_broker(self) -> bool:
        return bool(self.app.connection_for_write().transport.driver_type == "redis")

    def require_broker_store(self) -> None:
        """The lines of the fair queue are beside the messages. Raises ValueError if the leases are
        elsewhere: then no worker would ever get the message."""
        if not self._has_broker_store:
            raise ValueError(
                "the fair queue needs Redis as the broker and the leases in it; leave redis= out "
                "of balanced(), or pass a function that returns a client of the broker"
            )

    @cached_property
    def _has_broker_store(self) -> bool:
        where = self.options.redis
        other = isinstance(where, str) and where != self.broker_url()
        return self.has_redis_broker() and not other

    def connect_to_broker(self) -> Any:
        """A client of the broker's Redis. A function that the app gave also knows how to reach a
        broker behind Sentinel."""
        if callable(self.options.redis):
            return self.options.redis()
        return connect_to(_redis_url(self.broker_url()))

    def _connect(self) -> Any:
        where = self.options.redis
        if callable(where):
            return where()
        return self.connect_to_broker() if where is None else connect_to(_redis_url(where))


class Publishing(threading.local):
    """The leases that this thread has reserved and not yet published. A publish that failed leaves
    its lease here; the next reservation gives it back."""

    def __init__(self) -> None:
        self._reserved: list[str] = []
        self._sending: str | None = None

    def reserved(self, leases: Iterable[str]) -> None:
        self._reserved += leases

    def take_reserved(self, queue: str) -> str | None:
        """The lease for a message to this queue, if one was reserved."""
        start = lease_of(queue, "")
        for lease in self._reserved:
            if lease.startswith(start):
                self._reserved.remove(lease)
                return lease
        return None

    def sending(self, lease: str) -> None:
        self._sending = lease

    def sent(self, lease: str | None) -> bool:
        """Whether this thread was sending the message of this lease."""
        if lease is None or self._sending != lease:
            return False
        self._sending = None
        return True

    def take_unpublished(self) -> list[str]:
        left = [*self._reserved, *([self._sending] if self._sending else ())]
        self._reserved, self._sending = [], None
        return left


_balancers: WeakKeyDictionary[Any, Balancer] = WeakKeyDictionary()


def balanced(  # noqa: PLR0913 - each has a default that fits
    app: Any,
    queues: int | Sequence[str] = DEFAULT_QUEUES,
    *,
    prefix: str = "queue_",
    only: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    weights: bool = False,
    rebalance_retries: bool = False,
    reserve_ahead: int = DEFAULT_RESERVE_AHEAD,
    redis: str | Connect | None = None,
    key_prefix: str = DEFAULT_PREFIX,
    fair_queue: str = "fair",
    heartbeat_seconds: float = 10,
    grace_seconds: float = 30,
    settle_seconds: float = 5,
) -> Balancer:
    """A router for `app.conf.task_routes` that sends tasks to the least loaded of these queues.
    Also connects the signals and the worker step that keep the loads right.

    `queues` is a number of queues (named `prefix` + index) or a list of names. `only` and `exclude`
    are task names. `weights` counts a task by its measured duration instead of as one. A process
    that publishes in bulk reserves `reserve_ahead` places with one request; 1 means never ahead.
    The reconciler judges leases older than `grace_seconds`, and what it has seen twice at least
    `settle_seconds` apart."""
    from fairlane.celery import bootstep, signals

    options = Options(
        queues=queue_names(queues, prefix),
        only=None if only is None else frozenset(only),
        exclude=frozenset(exclude),
        weights=weights,
        rebalance_retries=rebalance_retries,
        reserve_ahead=reserve_ahead,
        redis=redis,
        key_prefix=key_prefix,
        fair_queue=fair_queue,
        heartbeat_seconds=heartbeat_seconds,
        grace_seconds=grace_seconds,
        settle_seconds=settle_seconds,
    )
    balancer = Balancer(app, options)
    if app in _balancers:
        signals.disconnect(_balancers[app])
    _balancers[app] = balancer
    signals.connect(balancer)
    bootstep.install(balancer)
    return balancer


def balancer_of(app: Any) -> Balancer:
    """The balancer of an app. Raises LookupError if it has none."""
    try:
        # a proxy such as `current_app` stands for an app and is not the same key
        return _balancers[getattr(app, "_get_current_object", lambda: app)()]
    except KeyError:
        raise LookupError(
            f"{app} has no balanced queues; set app.conf.task_routes = "
            "(fairlane.celery.balanced(app),)"
        ) from None


def _redis_url(url: str) -> str:
    if not url.startswith(REDIS_SCHEMES):
        scheme = url.partition(":")[0]
        raise ValueError(
            f"leases need Redis, and the broker is {scheme}; pass redis= with a URL or a function "
            "that returns a client"
        )
    return url
