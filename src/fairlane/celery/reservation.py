"""A reservation of a Celery queue on its way: the router sends the request and does not wait for
the answer.

Celery builds the message between the call of the router and the first use of the queue, which takes
longer than Redis needs. So the round trip costs a publish little more than the two system calls."""

from __future__ import annotations

from collections.abc import Callable

from kombu.entity import Queue


class ReservedQueue(Queue):
    """A queue whose name Redis is choosing. The first use of the name waits for the answer and
    turns this object into the queue."""

    def __init__(self, resolve: Callable[[], Queue]) -> None:
        self.__dict__["_resolve"] = resolve

    @property
    def name(self) -> str:  # type: ignore[override]
        queue = self.__dict__["_resolve"]()
        self.__dict__ = queue.__dict__
        self.__class__ = Queue  # type: ignore[assignment]
        return str(queue.name)
