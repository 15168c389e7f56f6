"""What the broker holds: the messages in the lists of each queue, and those that workers have not
acknowledged yet (`unacked`). Layout: kombu's Redis transport."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlane.celery.leases import run_script

LIST_STEP = 500
"""Messages that one script call reads."""

DEFAULT_STEPS = (0, 3, 6, 9)
DEFAULT_SEPARATOR = "\x06\x16"


class Broker:
    """`client` talks to the Redis of the broker; `options` are `broker_transport_options`."""

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        self._client = client
        self.prefix = str(options.get("global_keyprefix", ""))
        self._steps = tuple(options.get("priority_steps", DEFAULT_STEPS))
        self._separator = str(options.get("sep", DEFAULT_SEPARATOR))
        self._unacked = self.prefix + str(options.get("unacked_key", "unacked"))

    def depth(self, queue: str) -> int:
        """How many messages wait in the lists of a queue."""
        pipe = self._client.pipeline()
        for key in self._lists(queue):
            pipe.llen(key)
        return sum(pipe.execute())

    def waiting(self, queue: str) -> set[str]:
        """The leases of the messages in the lists of a queue. Read from the newest message on:
        pushes move a message to a higher index, so that one which stays is not missed."""
        found: set[str] = set()
        for key in self._lists(queue):
            first = 0
            while True:
                last = first + LIST_STEP - 1
                step = run_script(self._client, "leases_in_list", "", key, queue, first, last)
                found.update(lease.decode() for lease in step if lease)
                if len(step) < LIST_STEP:
                    break
                first += LIST_STEP
        return found

    def unacknowledged(self) -> set[str]:
        """The leases of the messages that workers hold: prefetched, waiting for their ETA and, with
        late acknowledgement, running."""
        return {*self._scan()}

    def _scan(self) -> Iterator[str]:
        cursor = b"0"
        while True:
            answer = run_script(
                self._client, "leases_unacked", "", self._unacked, cursor, LIST_STEP
            )
            cursor, step = answer
            yield from (lease.decode() for lease in step)
            if cursor == b"0":
                return

    def _lists(self, queue: str) -> Iterator[str]:
        for step in self._steps:
            yield self.prefix + (f"{queue}{self._separator}{step}" if step else queue)
