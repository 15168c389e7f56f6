"""Fair queueing for Celery: one line per user, served one user after the other (round robin).

Celery's broker is first in, first out, and a worker prefetches. So a fair task is published to a
queue that no worker consumes. A script moves its message into the line of its user, and the next
messages of the lines to workers with a free slot, each of which has a queue of its own. Messages
stay in the broker's Redis and are moved as they are: a crash loses none, and Celery's ids, results,
retries and revokes work as usual."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fairlane.celery.leases import Load, run_script
from fairlane.celery.router import Balancer

USER_HEADER = "fairlane_user"


class FairQueue:
    """The fair queue of one app. Its state is in the broker's Redis, beside the messages."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._queue = balancer.options.fair_queue

    def publish(self, task: Any, user_id: str, args: Any, kwargs: Any, options: Any) -> Any:
        headers = {**(options.pop("headers", None) or {}), USER_HEADER: quote(user_id, safe="")}
        options.pop("priority", None)  # the line of the user decides
        return task.apply_async(args, kwargs, queue=self._queue, headers=headers, **options)

    def release(self) -> int:
        """Hands the next messages to workers with free slots. Returns how many."""
        return int(self._run("release", self._queue, self._prefix()))

    def worker_queue(self, worker: str) -> str:
        return f"{self._queue}.{worker}"

    def join(self, worker: str, slots: int) -> None:
        """The worker takes up to this many fair tasks at once."""
        key = self._balancer.leases.key("fair:slots")
        self._balancer.leases.call(lambda client: client.hset(key, worker, slots))
        self.release()

    def leave(self, worker: str) -> None:
        """The worker takes no more fair tasks: those it has not taken yet go to other workers."""
        self._run("return_fair", self._queue, self._prefix(), worker)
        self.release()

    def holds(self, lease: str) -> bool:
        return lease.startswith(f"{self._queue}.")

    def workers(self) -> list[str]:
        key = self._balancer.leases.key("fair:slots")
        found = self._balancer.leases.call(lambda client: client.hkeys(key))
        return [worker.decode() for worker in found]

    def load(self) -> Load:
        """All fair tasks: those in line or delayed count as pending."""
        leases = self._balancer.leases

        def waiting(client: Any) -> int:
            users = client.zrange(leases.key("fair:users"), 0, -1)
            pipe = client.pipeline()
            pipe.llen(self._prefix() + self._queue)
            pipe.zcard(leases.key("fair:delayed"))
            for user in users:
                pipe.llen(leases.key(f"fair:line:{user.decode()}"))
            return sum(pipe.execute())

        handed = leases.loads([self.worker_queue(worker) for worker in self.workers()]).values()
        pending = sum(load.pending for load in handed)
        return Load(leases.call(waiting) + pending, sum(load.running for load in handed))

    def _prefix(self) -> str:
        options = self._balancer.app.conf.broker_transport_options or {}
        return str(options.get("global_keyprefix", ""))

    def _run(self, verb: str, *args: str) -> Any:
        leases = self._balancer.leases
        prefix = self._balancer.options.key_prefix
        return leases.call(lambda client: run_script(client, verb, prefix, *args))
