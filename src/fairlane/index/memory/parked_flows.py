"""Parked flows: flows of users at their running limit. They are not ranked until one of the user's
jobs ends."""

from __future__ import annotations

from fairlane.index.memory.flows import Flow
from fairlane.index.memory.service_queue import ServiceQueue


class ParkedFlows:
    def __init__(self) -> None:
        self._parked: dict[str, list[tuple[ServiceQueue, Flow]]] = {}

    def park(self, service_queue: ServiceQueue, flow: Flow) -> None:
        service_queue.park(flow)
        self._parked.setdefault(flow.user, []).append((service_queue, flow))

    def unpark(self, user: str) -> None:
        for service_queue, flow in self._parked.pop(user, ()):
            service_queue.unpark(flow)

    def forget(self, service_queue: ServiceQueue) -> None:
        """Drop the flows of a service queue that is replaced."""
        self._parked = {
            user: [each for each in parked if each[0] is not service_queue]
            for user, parked in self._parked.items()
        }
