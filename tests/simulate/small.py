"""Small workloads and settings that a reader can check by hand."""

from __future__ import annotations

from fairlane.model.catalog import Catalog
from fairlane.model.service import Affinity, Fairness, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.simulate.run import Run
from fairlane.simulate.scenario import Scenario
from fairlane.simulate.workload import Arrival, workload
from fairlane.units import SECOND

PAID, FREE = 0, 1
TIERS = Tiers([Tier("paid", {"paid": 30}), Tier("free", {"paid": 60})], default="free")


def job(
    at: float,
    seconds: float | tuple[float, ...] = 10,
    *,
    user: str = "u",
    rank: int = FREE,
    name: str = "draw",
    model: str = "",
    load: float | None = None,
) -> Arrival:
    times = seconds if isinstance(seconds, tuple) else (seconds,)
    return Arrival(
        round(at * SECOND),
        user,
        rank,
        name,
        model,
        tuple(round(each * SECOND) for each in times),
        None if load is None else round(load * SECOND),
    )


def settings(*services: Service, tiers: Tiers = TIERS, **more: object) -> Catalog:
    return Catalog(tiers, services or [draw()], **more)  # type: ignore[arg-type]


def draw(limit: int = 1, **more: object) -> Service:
    return Service("draw", limit=limit, **more)  # type: ignore[arg-type]


def plain(limit: int = 1) -> Service:
    """First come, first served inside a tier, and no thought of models."""
    return draw(limit, fairness=Fairness.NONE, affinity=Affinity.NONE)


def asking(catalog: Catalog, *arrivals: Arrival, workers: int = 0) -> Scenario:
    return Scenario("asked", catalog, workload("by hand", arrivals), workers)


def starts(run: Run) -> list[float]:
    """When each job's last step began to work, in the order of arrival."""
    begun = {each.job: each.begun / SECOND for each in run.served}
    return [begun[index] for index in sorted(begun)]
