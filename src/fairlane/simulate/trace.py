"""Reads a trace: CSV or JSON lines, also gzipped, or the output of `fairlane jobs export`."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import orjson

from fairlane.errors import InvalidInput, UnknownName
from fairlane.model.catalog import Catalog
from fairlane.simulate.workload import Arrival, Workload, workload
from fairlane.units import SECOND

Row = Mapping[str, Any]

COLUMNS = {
    "at": ("t", "at", "arrival", "time", "submitted_at", "queued_at", "created_at"),
    "user": ("user", "user_id"),
    "tier": ("tier", "priority"),
    "service": ("service", "feature_name", "task_type", "name"),
    "model": ("model",),
    "seconds": ("seconds", "svc_s", "duration"),
    "load": ("load_s", "load_seconds"),
}
"""The accepted names of each column, in the order of preference."""

NEEDED = ("at", "seconds")


def read(path: Path, catalog: Catalog, service: str | None = None) -> Workload:
    """The jobs of a trace, for these settings. `service` replaces the services of the trace."""
    try:
        with _opened(path) as lines:
            found = [
                _arrival(row, catalog, service, f"{path}:{number}")
                for number, row in _rows(path, lines)
            ]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    return workload(str(path), found)


def _opened(path: Path) -> IO[str]:
    with path.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8") if zipped else path.open(encoding="utf-8")


def _rows(path: Path, lines: IO[str]) -> Iterator[tuple[int, Row]]:
    first = lines.readline()
    if first.lstrip().startswith("{"):
        for number, line in enumerate(_again(first, lines), start=1):
            if line.strip():
                yield number, _object(line, f"{path}:{number}")
        return
    header = next(csv.reader(io.StringIO(first)), [])
    missing = [name for name in NEEDED if not set(COLUMNS[name]) & set(header)]
    if missing:
        wanted = "; ".join(f"{name}: one of {', '.join(COLUMNS[name])}" for name in missing)
        raise InvalidInput(f"{path} lacks a column. {wanted}")
    for number, row in enumerate(csv.DictReader(lines, fieldnames=header), start=2):
        yield number, row


def _again(first: str, rest: IO[str]) -> Iterator[str]:
    yield first
    yield from rest


def _object(line: str, where: str) -> Row:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{where}: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{where}: a job must be a JSON object")
    return found


def _arrival(row: Row, catalog: Catalog, service: str | None, where: str) -> Arrival:
    try:
        name = service or str(_value(row, "service") or _only(catalog))
        return Arrival(
            at=_time(_value(row, "at")),
            user=str(_value(row, "user") or ""),
            rank=_rank(_value(row, "tier"), catalog),
            name=name,
            model=str(_value(row, "model") or ""),
            seconds=_seconds(_value(row, "seconds"), len(catalog.steps(name))),
            load=_microseconds(load) if (load := _value(row, "load")) not in (None, "") else None,
        )
    except (InvalidInput, UnknownName, ValueError, TypeError) as error:
        raise InvalidInput(f"{where}: {error}") from None


def _value(row: Row, name: str) -> Any:
    return next((row[column] for column in COLUMNS[name] if column in row), None)


def _only(catalog: Catalog) -> str:
    if len(catalog.services) == 1:
        return next(iter(catalog.services))
    raise InvalidInput("names no service, and the settings have several; choose one with --service")


def _time(value: Any) -> int:
    """Seconds, or a date and time."""
    if isinstance(value, str) and "T" in value:
        return round(datetime.fromisoformat(value).timestamp() * SECOND)
    return round(float(value) * SECOND)


def _rank(value: Any, catalog: Catalog) -> int:
    """A tier by its name, or by its number; 0 is the best."""
    tiers = catalog.tiers
    if value in (None, ""):
        return tiers.rank(tiers.default)
    if str(value).isdigit() and str(value) not in tiers.names:
        if int(value) >= len(tiers):
            raise InvalidInput(f"tier {value}, but the settings have {len(tiers)}: 0 is the best")
        return int(value)
    return tiers.rank(str(value))


def _seconds(value: Any, steps: int) -> tuple[int, ...]:
    """The duration of each step. One number for a pipeline is divided evenly among its steps."""
    parts: Sequence[Any] = value
    if not isinstance(value, list):
        parts = str(value).split("+") if isinstance(value, str) else [value]
    times = [_microseconds(each) for each in parts]
    if len(times) == 1 and steps > 1:
        times = [times[0] // steps] * steps
    if len(times) != steps:
        raise InvalidInput(f"{len(times)} times for {steps} steps")
    return tuple(max(1, each) for each in times)


def _microseconds(value: Any) -> int:
    found = round(float(value) * SECOND)
    if found < 0:
        raise InvalidInput(f"a time cannot be below 0: {value}")
    return found
