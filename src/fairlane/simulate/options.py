"""Options of the simulate command: settings, what-ifs, workload and load."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from fairlane.config.load import load
from fairlane.errors import InvalidInput
from fairlane.model.catalog import Catalog
from fairlane.simulate.generate import WorkloadKind, generate
from fairlane.simulate.places import load_of
from fairlane.simulate.scenario import Scenario
from fairlane.simulate.trace import read
from fairlane.simulate.workload import Workload, faster, with_loads

GENERATED_LOAD = 0.9
"""The default utilisation of the busiest service with a generated workload."""

BASE = "as it is"


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """`load` is the target utilisation of the busiest places, `traffic` a factor on the trace's
    traffic (0 = neither), `model_load` seconds or a file of them. `service` replaces the services
    of the trace. Without a trace, `jobs` jobs are generated."""

    trace: Path | None = None
    config: Path | None = None
    preset: str = "tasks"
    workers: int = 0
    load: float = 0
    traffic: float = 0
    model_load: str = ""
    service: str | None = None
    jobs: int = 10_000
    seed: int = 1


def questions(
    ask: SimulationOptions,
    what_ifs: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[Scenario]:
    """The settings as they are, then each what-if, all with the same jobs at the same times."""
    scenarios = [(BASE, changes("")), *((each, changes(each)) for each in what_ifs)]
    several = []
    for name, flags in scenarios:
        settings = load(ask.config, preset=ask.preset, environment=environment, flags=flags)
        several.append(asked(ask, settings.catalog, name))
    base = several[0]
    speed = _speed(ask, base)
    found = []
    for question in several:
        same_tiers = question.catalog.tiers.names == base.catalog.tiers.names
        found.append(
            replace(
                question,
                workload=faster(question.workload, speed),
                targets=base.aims if same_tiers else (),
            )
        )
    return found


def asked(ask: SimulationOptions, catalog: Catalog, name: str = BASE) -> Scenario:
    """The scenario before its times are scaled."""
    given = _workload(ask, catalog)
    if ask.model_load:
        given = with_loads(given, _loads(ask.model_load), ask.seed)
    return Scenario(name, catalog, given, ask.workers)


def scaled(ask: SimulationOptions, question: Scenario) -> Scenario:
    return replace(question, workload=faster(question.workload, _speed(ask, question)))


def changes(what_if: str) -> dict[tuple[str, ...], Any]:
    """Parses `services.image_gen.limit=2`; several changes are separated by spaces."""
    found = {}
    for part in what_if.split():
        path, equals, value = part.partition("=")
        if not equals or not path:
            raise InvalidInput(f'"{part}" is not a change; write services.image_gen.limit=2')
        found[tuple(path.split("."))] = _value(value)
    return found


def _value(text: str) -> Any:
    """The value as TOML; text if it is not TOML."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _workload(ask: SimulationOptions, catalog: Catalog) -> Workload:
    if ask.trace is not None:
        return read(ask.trace, catalog, ask.service)
    names = tuple(sorted(catalog.services)) or (ask.service or "task",)
    models = 5 if ask.model_load else 0
    kind = WorkloadKind(jobs=ask.jobs, users=max(10, ask.jobs // 50), models=models, names=names)
    return generate(kind, len(catalog.tiers), ask.seed)


def _loads(given: str) -> list[float]:
    """Seconds, or a JSON file with many values to draw from."""
    try:
        return [float(given)]
    except ValueError:
        pass
    try:
        found = orjson.loads(Path(given).read_bytes())
        return [float(each) for each in found]
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"{given} is neither seconds nor a JSON list of them: {error}") from None


def _speed(ask: SimulationOptions, question: Scenario) -> float:
    wanted = ask.load
    if not wanted and not ask.traffic and ask.trace is None:
        wanted = GENERATED_LOAD
    if wanted:
        return wanted / load_of(question.catalog, question.workload, question.workers)
    return ask.traffic or 1.0
