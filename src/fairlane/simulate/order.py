"""An order of service, as a simulation sees it: jobs come, places ask, jobs end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from fairlane.simulate.places import SimulatedSlot
from fairlane.simulate.workload import Arrival

Plan = list[tuple[str, str, int]]


class SimulatedStep:
    """A job in line for one of its steps, or running it. `waited` is its waiting before this step,
    `plan` the (service, lane, longest wait) of each of its steps."""

    __slots__ = (
        "arrival",
        "gone",
        "id",
        "index",
        "lane",
        "model",
        "number",
        "plan",
        "rank",
        "ready_at",
        "runs",
        "service",
        "user",
        "waited",
    )

    def __init__(self, index: int, arrival: Arrival, plan: Plan) -> None:
        self.index, self.arrival, self.plan = index, arrival, plan
        self.id = f"{index:08d}"
        self.user, self.rank, self.model = arrival.user, arrival.rank, arrival.model
        self.number = self.ready_at = self.waited = 0
        self.service = self.lane = ""
        self.gone = self.runs = False

    @property
    def score(self) -> int:
        """Its place in time: when it would have come had it waited in one piece."""
        return self.ready_at - self.waited


class Nothing(NamedTuple):
    """Nothing for this place now; without a wake-up it looks again then (None = it need not)."""

    look_again_at: int | None = None


class Order(Protocol):
    name: str

    def put(self, step: SimulatedStep, now: int) -> None:
        """It waits from now on."""

    def take(self, step: SimulatedStep) -> None:
        """It does not wait any longer."""

    def claim(self, place: SimulatedSlot, now: int) -> SimulatedStep | Nothing:
        """What this place runs next, its slots taken."""

    def ended(self, step: SimulatedStep, now: int) -> None:
        """It ran until now; its slots are free."""

    def loaded(self, step: SimulatedStep, duration: int) -> None:
        """Its model was loaded in this time."""

    def woken(self) -> Iterator[SimulatedSlot]:
        """Idle places that should ask again."""
