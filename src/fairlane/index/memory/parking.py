"""Flows whose user has as many jobs running as allowed: out of the order until one ends."""

from __future__ import annotations

from fairlane.index.memory.desk import Desk
from fairlane.index.memory.flows import Flow


class Parking:
    def __init__(self) -> None:
        self._parked: dict[str, list[tuple[Desk, Flow]]] = {}

    def park(self, desk: Desk, flow: Flow) -> None:
        desk.park(flow)
        self._parked.setdefault(flow.user, []).append((desk, flow))

    def unpark(self, user: str) -> None:
        for desk, flow in self._parked.pop(user, ()):
            desk.unpark(flow)

    def forget(self, desk: Desk) -> None:
        """The desk is no more."""
        self._parked = {
            user: [each for each in parked if each[0] is not desk]
            for user, parked in self._parked.items()
        }
