"""The interface of an order of service in the simulator: jobs arrive, places claim, jobs end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from fairlane.simulate.places import SimulatedSlot
from fairlane.simulate.workload import Arrival

Plan = list[tuple[str, str, int]]


class SimulatedStep:
    """A job that waits for or runs one of its steps. `waited` is its waiting time before this step,
    `plan` the (service, lane, longest wait) of each step."""

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
        """Its place in time: when it would have arrived had it waited without a break."""
        return self.ready_at - self.waited


class Nothing(NamedTuple):
    """No job for this place now. Without a wake-up it checks again at this time (None = it need
    not)."""

    look_again_at: int | None = None


class Order(Protocol):
    name: str

    def put(self, step: SimulatedStep, now: int) -> None:
        """The step waits from now on."""

    def take(self, step: SimulatedStep) -> None:
        """The step leaves the queue."""

    def claim(self, place: SimulatedSlot, now: int) -> SimulatedStep | Nothing:
        """The next step of this place, with its slots taken."""

    def ended(self, step: SimulatedStep, now: int) -> None:
        """The step ended; its slots are free."""

    def loaded(self, step: SimulatedStep, duration: int) -> None:
        """Loading its model took this long."""

    def woken(self) -> Iterator[SimulatedSlot]:
        """Idle places that should claim again."""
