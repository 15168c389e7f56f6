"""The three benchmark workloads: from recorded traces, or generated to resemble them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from fairlane.model.catalog import Catalog
from fairlane.model.service import Affinity, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.simulate.generate import CHAT, CLIENTS, IMAGES, WorkloadKind, generate
from fairlane.simulate.scenario import Scenario
from fairlane.simulate.trace import read
from fairlane.simulate.workload import Workload, flattened, folded, with_loads

TIERS = ("admin", "creator", "premium", "supporter", "free")
PATIENCE = (30.0, 45.0, 60.0, 90.0, 120.0)
DAY, HOUR = 86_400, 3_600


@dataclass(frozen=True, slots=True)
class World:
    """`scale` is its mean service time relative to workload B. Its targets scale with it."""

    name: str
    file: str
    kind: WorkloadKind
    places: int
    scale: float
    load_seconds: tuple[float, ...] = ()
    daily: bool = False


B = World("B", "gentd26_diffusion_dev.csv.gz", IMAGES, 13, 1.0, (22.0,), daily=True)
C = World("C", "azure_llm_2023.csv.gz", CHAT, 39, 0.172)
D = World("D", "servegen_clients.csv.gz", CLIENTS, 13, 0.1, (3.5,))
WORLDS = {world.name: world for world in (B, C, D)}
LOAD_TIMES = "gentd26_switch_times.json"


def question(
    world: World, load: float, traces: Path | None, seed: int = 1, few: int | None = None
) -> Scenario:
    """The scenario at this load. With `few`, that many generated jobs, for a quick run."""
    if few is not None:
        world, traces = replace(world, kind=replace(world.kind, jobs=few)), None
    catalog = Catalog(tiers(world.scale), task_defaults=_service(world))
    given, loads = _workload(world, catalog, traces, seed)
    if loads:
        given = with_loads(given, loads, seed)
    else:
        given = replace(given, arrivals=tuple(each._replace(model="") for each in given.arrivals))
    asked = Scenario(f"{world.name} {load:g}", catalog, given, world.places)
    return replace(asked, workload=asked.at_load(load))


def tiers(scale: float) -> Tiers:
    """Each tier is promoted to the next better one after equal parts of its patience."""
    found = []
    for rank, (name, patience) in enumerate(zip(TIERS, PATIENCE, strict=True)):
        promote = {TIERS[0]: patience * scale}
        for better in range(1, rank):
            promote[TIERS[better]] = patience * scale * (rank - better) / rank
        found.append(Tier(name, promote))
    return Tiers(found)


def _service(world: World) -> Service:
    return Service("any", affinity=Affinity.RESIDENCY if world.load_seconds else Affinity.NONE)


def _workload(
    world: World, catalog: Catalog, traces: Path | None, seed: int
) -> tuple[Workload, tuple[float, ...]]:
    path = traces / world.file if traces is not None else None
    if path is None or not path.exists():
        return generate(world.kind, len(TIERS), seed), world.load_seconds
    given = read(path, catalog)
    loads = world.load_seconds
    if world.daily:
        given = flattened(folded(given, DAY), HOUR)
        times = orjson.loads((path.parent / LOAD_TIMES).read_bytes())
        loads = tuple(times["base_model"]["q"])
    return given, loads
