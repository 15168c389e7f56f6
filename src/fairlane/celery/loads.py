"""Reads the loads of all queues. Needs Redis and no Celery app."""

from __future__ import annotations

from typing import Any

from fairlane.celery.leases import LeaseStore, Load, connect_to
from fairlane.celery.options import Options


class LoadReader:
    """The loads in one lease store. Each read may raise StoreAway."""

    def __init__(self, leases: LeaseStore) -> None:
        self._leases = leases

    @classmethod
    def at(cls, url: str, key_prefix: str) -> LoadReader:
        options = Options(queues=(), key_prefix=key_prefix)
        return cls(LeaseStore(options, lambda: connect_to(url)))

    def read(self) -> dict[str, Load]:
        """The loads of the configured queues, in the order of their index, and of the fair
        queue."""
        loads = self._leases.loads(self._leases.options.queues or self._leases.queues())
        fair = self._fair()
        return loads if fair is None else {**loads, fair[0]: fair[1]}

    def close(self) -> None:
        self._leases.close()

    def _fair(self) -> tuple[str, Load] | None:
        """The fair queue. Tasks in line or delayed count as pending."""
        leases = self._leases

        def names(client: Any) -> tuple[str | None, list[str], list[str]]:
            pipe = client.pipeline()
            pipe.get(leases.key("fair:queue"))
            pipe.smembers(leases.key("fair:workers"))
            pipe.zrange(leases.key("fair:users"), 0, -1)
            queue, workers, users = pipe.execute()
            return (
                queue and queue.decode(),
                [worker.decode() for worker in workers],
                [user.decode() for user in users],
            )

        queue, workers, users = leases.call(names)
        if queue is None:
            return None

        def waiting(client: Any) -> int:
            pipe = client.pipeline()
            pipe.zcard(leases.key("fair:delayed"))
            for user in users:
                pipe.llen(leases.key(f"fair:line:{user}"))
            return sum(pipe.execute())

        handed = leases.loads([f"{queue}.{worker}" for worker in workers]).values()
        pending = leases.call(waiting) + sum(load.pending for load in handed)
        return queue, Load(pending, sum(load.running for load in handed))
