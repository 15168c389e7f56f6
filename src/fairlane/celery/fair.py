"""Fair queueing for Celery: one line per user, served one user after the other (round robin).

Celery's broker is first in, first out, and a worker prefetches. So a fair task is published to a
queue that no worker consumes. A script moves its message into the line of its user, and the next
messages of the lines to workers with a free slot, each of which has a queue of its own. Messages
stay in the broker's Redis and are moved as they are: a crash loses none, and Celery's ids, results,
retries and revokes work as usual."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fairlane.celery.leases import run_script
from fairlane.celery.router import Balancer

USER_HEADER = "fairlane_user"


class FairQueue:
    """The fair queue of one app. Its state is in the broker's Redis, beside the messages."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._queue = balancer.options.fair_queue

    def publish(self, task: Any, user_id: str, args: Any, kwargs: Any, options: Any) -> Any:
        self._balancer.require_broker_store()
        headers = {**(options.pop("headers", None) or {}), USER_HEADER: quote(user_id, safe="")}
        return task.apply_async(args, kwargs, queue=self._queue, headers=headers, **options)

    def release(self) -> int:
        """Hands the next messages to workers with free slots. Returns how many."""
        return int(self._run("release", self._queue, self._prefix()))

    def worker_queue(self, worker: str) -> str:
        return f"{self._queue}.{worker}"

    def join(self, worker: str, slots: int) -> None:
        """The worker takes up to this many fair tasks at once."""
        leases = self._balancer.leases

        def write(client: Any) -> None:
            client.sadd(leases.key("fair:workers"), worker)
            client.hset(leases.key("fair:slots"), worker, slots)

        leases.call(write)
        self.release()

    def leave(self, worker: str) -> None:
        """The worker takes no more fair tasks: those it has not taken yet go to other workers."""
        self._run("return_fair", self._queue, self._prefix(), worker)
        self.release()

    def holds(self, lease: str) -> bool:
        return lease.startswith(f"{self._queue}.")

    def bury(self, worker: str) -> None:
        """The worker is dead: what it ran is over, or comes back as a message in `fair`."""
        leases = self._balancer.leases
        self.leave(worker)
        leases.forget([self.worker_queue(worker)])
        leases.call(lambda client: client.srem(leases.key("fair:workers"), worker))

    def workers(self) -> list[str]:
        """Every worker that may have leases of fair tasks, also while it is leaving."""
        key = self._balancer.leases.key("fair:workers")
        found = self._balancer.leases.call(lambda client: client.smembers(key))
        return sorted(worker.decode() for worker in found)

    def _prefix(self) -> str:
        options = self._balancer.app.conf.broker_transport_options or {}
        return str(options.get("global_keyprefix", ""))

    def _run(self, verb: str, *args: str) -> Any:
        leases = self._balancer.leases
        prefix = self._balancer.options.key_prefix
        return leases.call(lambda client: run_script(client, verb, prefix, *args))
