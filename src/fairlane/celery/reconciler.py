"""The reconciler of Celery queues: compares the leases with what the broker and the workers really
hold."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from fairlane.celery.broker import Broker
from fairlane.celery.fair import FairQueue
from fairlane.celery.leases import lease_of
from fairlane.celery.router import Balancer

log = logging.getLogger("fairlane.celery")


class Reconciler:
    """One look at a time over all processes. A lease without a message, or a message without a
    lease, is settled when two looks have seen it some seconds apart, and all looks between them: a
    message is in no list while a worker takes it, and a worker may acknowledge one two seconds
    after it has run."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer
        self._leases, self._options = balancer.leases, balancer.options
        self._fair = FairQueue(balancer)
        self._client: Any = None

    def look_if_due(self) -> None:
        """Looks, unless another process has looked during this heartbeat."""
        period = max(1, int(self._options.heartbeat_seconds * 900))  # a little less than one
        key = self._leases.key("look")
        if self._leases.call(lambda client: client.set(key, 1, nx=True, px=period)):
            self.look()

    def look(self) -> None:
        self._release_dead_workers()
        queues = self._queues()
        broker = self._broker()
        if broker is None:
            return
        held = self._held(broker)
        differ = self._differing(broker, queues, held - self._running(queues))
        taken = {queue: self._leases.pending(queue) for queue in differ}
        running = self._running(differ)
        found = held.union(*(self._waiting(broker, queue) for queue in differ))
        found |= self._held(broker)  # a message on its way is in a list, or it is here afterwards
        self._drop_absent({k: v for leases in taken.values() for k, v in leases.items()}, found)
        own = {lease for lease in found if lease.rpartition("|")[0] in taken}
        self._adopt_unknown(own - running.union(*taken.values()))

    def _running(self, queues: list[str]) -> set[str]:
        return {lease for queue in queues for lease in self._leases.running(queue)}

    def _differing(self, broker: Broker, queues: list[str], held: set[str]) -> list[str]:
        """The queues whose number of pending leases is not that of their messages. The others are
        not read: with a long queue that would take a while."""
        unacked = Counter(lease.rpartition("|")[0] for lease in held)
        loads = self._leases.loads(queues)
        return [
            queue
            for queue in queues
            if broker.depth(queue) + unacked[queue] != loads[queue].pending
        ]

    def reset(self, queue: str | None = None) -> None:
        """Forgets all leases of one queue or of all; then adopts what the broker holds. Workers
        report what they run with their next heartbeats. Raises ValueError for another queue."""
        queues = self._queues() if queue is None else self._named(queue)
        self._leases.forget(queues)
        broker = self._broker()
        if broker is None:
            return
        for each in queues:
            self._leases.adopt(self._waiting(broker, each))
        held = self._held(broker)
        self._leases.adopt(lease for lease in held if lease.rpartition("|")[0] in queues)

    def _queues(self) -> list[str]:
        own = [self._fair.worker_queue(worker) for worker in self._fair.workers()]
        return [*self._options.queues, *own]

    def _named(self, queue: str) -> list[str]:
        if queue == self._options.fair_queue:
            return [self._fair.worker_queue(worker) for worker in self._fair.workers()]
        if not self._options.counts(queue):
            known = ", ".join((*self._options.queues, self._options.fair_queue))
            raise ValueError(f"{queue} is not a balanced queue; known: {known}")
        return [queue]

    def _waiting(self, broker: Broker, queue: str) -> set[str]:
        leases = broker.waiting(queue)
        if self._fair.holds(queue):
            return {lease_of(queue, lease.rpartition("|")[2]) for lease in leases}
        return leases

    def _held(self, broker: Broker) -> set[str]:
        """The leases of unacknowledged messages. One of the fair queue does not tell its worker:
        the lease does."""
        unacked = broker.unacknowledged()
        fair = {lease.rpartition("|")[2] for lease in unacked if self._is_fair(lease)}
        found = {lease for lease in unacked if not self._is_fair(lease)}
        for worker in self._fair.workers() if fair else ():
            queue = self._fair.worker_queue(worker)
            for lease in (*self._leases.pending(queue), *self._leases.running(queue)):
                if lease.rpartition("|")[2] in fair:
                    found.add(lease)
        return found

    def _is_fair(self, lease: str) -> bool:
        return lease.rpartition("|")[0] == self._options.fair_queue

    def _release_dead_workers(self) -> None:
        live = self._leases.live_workers()
        dead = {nonce for nonce, worker in self._leases.owners().items() if worker not in live}
        if dead:
            leases = self._running(self._queues())
            self._leases.requeue(*(each for each in leases if each.rpartition("|")[2] in dead))
        for worker in self._fair.workers():
            if worker not in live:
                self._fair.bury(worker)
        for worker in self._leases.workers().keys() - live:
            self._leases.leave(worker)

    def _drop_absent(self, taken: dict[str, float], found: set[str]) -> None:
        before = self._leases.now() - self._options.grace_seconds
        absent = {lease for lease, at in taken.items() if lease not in found and at < before}
        lost = self._settled("absent", absent)
        dropped = self._leases.drop({lease: taken[lease] for lease in lost})
        if dropped:
            log.warning("%d leases of Celery tasks had no message and were dropped", dropped)

    def _adopt_unknown(self, unknown: set[str]) -> None:
        adopted = self._leases.adopt(self._settled("unknown", unknown))
        if adopted:
            log.info("%d Celery tasks that had no lease are counted now", adopted)

    def _settled(self, name: str, seen: set[str]) -> set[str]:
        """Those that earlier looks have seen too, long enough ago. The others are remembered."""
        key = self._leases.key(f"looked:{name}")
        now = self._leases.now()

        def exchange(client: Any) -> dict[str, float]:
            found = client.hgetall(key)
            before = {lease.decode(): float(at) for lease, at in found.items()}
            pipe = client.pipeline()
            pipe.delete(key)
            for lease in seen:
                pipe.hset(key, lease, repr(before.get(lease, now)))
            pipe.execute()
            return before

        before = self._leases.call(exchange)
        until = now - self._options.settle_seconds
        return {lease for lease in seen if lease in before and before[lease] <= until}

    def _broker(self) -> Broker | None:
        """None for a broker that cannot be read: only Redis can."""
        if self._client is None and self._balancer.has_redis_broker():
            self._client = self._balancer.connect_to_broker()
        if self._client is None:
            return None
        return Broker(self._client, dict(self._balancer.app.conf.broker_transport_options or {}))


class RunningTasks:
    """Compares the running leases of one worker with the requests that it runs."""

    def __init__(self, balancer: Balancer, worker: str) -> None:
        self._balancer, self._worker = balancer, worker
        self._ended: dict[str, float] = {}
        self._unknown: dict[str, float] = {}

    def compare(self, active: Iterable[str], queues: Iterable[str]) -> None:
        """`active`: the leases of the tasks that this worker runs now."""
        leases = self._balancer.leases
        runs = {*active}
        owners = leases.owners()
        running = {lease for queue in queues for lease in leases.running(queue)}
        own = {each for each in running if owners.get(each.rpartition("|")[2]) == self._worker}
        leases.requeue(*self._settled(self._ended, own - runs))
        leases.adopt(self._settled(self._unknown, runs - running), self._worker)

    def _settled(self, since: dict[str, float], seen: set[str]) -> set[str]:
        """Those that were seen before, long enough ago. The others are remembered in `since`."""
        now = time.monotonic()
        until = now - self._balancer.options.settle_seconds
        settled = {lease for lease in seen if lease in since and since[lease] <= until}
        remembered = {lease: since.get(lease, now) for lease in seen - settled}
        since.clear()
        since.update(remembered)
        return settled
