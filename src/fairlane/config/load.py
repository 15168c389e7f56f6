"""Loads the configuration. Later sources win: file, `FAIRLANE_…__…` variables, older variable
names, flags."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fairlane.config.build import build
from fairlane.config.file_schema import File, TiersTable, words
from fairlane.config.setting_errors import (
    BadSettings,
    SettingError,
    Sources,
    from_validation,
    suggestion,
    unknown,
)
from fairlane.config.settings import Settings
from fairlane.presets import tasks

FILE = "fairlane.toml"
PREFIX, BETWEEN = "FAIRLANE_", "__"
OTHER_NAMES = {
    "PRIORITY_API_URL": ("priority", "url"),
    "REDIS_URL": ("server", "redis_url"),
    "DATABASE_URL": ("server", "database_url"),
}
PROMOTIONS = {
    "PROMOTE_LOW_TO_MEDIUM_AFTER": ("low", "medium"),
    "PROMOTE_MEDIUM_TO_HIGH_AFTER": ("medium", "high"),
}
PRESETS = resources.files("fairlane.config") / "presets"

Raw = dict[str, Any]


def load(
    path: Path | None = None,
    *,
    preset: str = "tasks",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[tuple[str, ...], Any] | None = None,
) -> Settings:
    """The validated settings. Raises BadSettings with every mistake. Without a path it reads
    `fairlane.toml` if that exists, else the preset."""
    environment = environment or {}
    raw, source = _file(path, preset)
    sources = Sources(source)
    problems = _variables(raw, environment, sources)
    problems += _other_names(raw, environment, sources)
    for place, value in (flags or {}).items():
        if value is not None:
            _put(raw, place, value)
            sources.note(place, f"--{place[-1].replace('_', '-')}")
    try:
        file = File.model_validate(raw)
    except ValidationError as error:
        problems += from_validation(error, sources)
        wrong = [tuple(map(str, each["loc"])) for each in error.errors()]
        problems += _else_wrong(raw, wrong, lambda file: build(file, source, sources, environment))
        raise BadSettings(problems) from None
    if problems:
        raise BadSettings(problems)
    return build(file, source, sources, environment)


def load_server(path: Path | None, environment: Mapping[str, str]) -> tuple[str, int]:
    """Host and port on which a server with these settings listens. The rest of the file is not
    read, so a caller needs none of the server's secrets."""
    raw, source = _file(path, "tasks")
    sources = Sources(source)
    _variables(raw, environment, sources)
    named = raw.get("server", {})
    if isinstance(named, dict):
        named = {key: named[key] for key in ("host", "port") if key in named}
    try:
        server = File.model_validate({"server": named}).server
    except ValidationError as error:
        raise BadSettings(from_validation(error, sources)) from None
    return server.host, server.port


def _else_wrong(
    raw: Raw, wrong: list[tuple[str, ...]], built: Callable[[File], Settings]
) -> list[SettingError]:
    """Further mistakes, in tables without any of the wrong values."""
    rest = deepcopy(raw)
    for path in wrong:
        _remove(rest, path)
    try:
        built(File.model_validate(rest))
    except ValidationError:
        return []
    except BadSettings as error:
        tables = {path[:2] for path in wrong}
        return [each for each in error.problems if tuple(each.place.split(".")[:2]) not in tables]
    return []


def _remove(raw: Raw, path: tuple[str, ...]) -> None:
    inner = raw.get(path[0])
    if len(path) > 1 and isinstance(inner, dict):
        _remove(inner, path[1:])
    else:
        raw.pop(path[0], None)


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process, without Fairlane's settings."""
    ours = {*OTHER_NAMES, *PROMOTIONS}
    return {
        name: value
        for name, value in environment.items()
        if name not in ours and not name.startswith(PREFIX)
    }


def preset_text(name: str) -> str:
    """The file of a preset, with its comments."""
    return (PRESETS / f"{name}.toml").read_text("utf-8")


def preset_names() -> list[str]:
    return sorted(each.name.removesuffix(".toml") for each in PRESETS.iterdir())


def _file(path: Path | None, preset: str) -> tuple[Raw, str]:
    if path is None and not Path(FILE).exists():
        return tomllib.loads(preset_text(preset)), f"preset {preset}"
    path = path or Path(FILE)
    try:
        return tomllib.loads(path.read_text("utf-8")), str(path)
    except OSError as error:
        raise BadSettings(
            [SettingError("", f"cannot be read: {error.strerror}", str(path))]
        ) from None
    except ValueError as error:  # not TOML, not text, or a number of a thousand digits
        raise BadSettings([SettingError("", f"is not valid TOML: {error}", str(path))]) from None


# --- variables -----------------------------------------------------------------------------------
def _variables(raw: Raw, environment: Mapping[str, str], sources: Sources) -> list[SettingError]:
    """Applies variables such as `FAIRLANE_SERVER__PORT=9000`. A name without two underscores is not
    a setting."""
    problems = []
    for name, text in environment.items():
        if not name.startswith(PREFIX) or BETWEEN not in name:
            continue
        path = _known_path(raw, name.removeprefix(PREFIX).split(BETWEEN))
        if path[0] not in File.model_fields:
            known = suggestion(path[0], File.model_fields)
            problems.append(SettingError("", f'there is no section "{path[0]}"{known}', name))
            continue
        _put(raw, path, _value(text))
        sources.note(path, name)
    return problems


def _known_path(raw: Raw, parts: list[str]) -> tuple[str, ...]:
    """The path with the letter case of names that exist already: variables are upper case."""
    path = []
    table: Any = raw
    for part in parts:
        names = table if isinstance(table, dict) else {}
        found = next((name for name in names if name.lower() == part.lower()), part.lower())
        path.append(found)
        table = names.get(found, {})
    return tuple(path)


def _value(text: str) -> Any:
    """The value as TOML; text if it is not TOML."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text


def _put(raw: Raw, path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        inner = raw.get(part)
        raw[part] = dict(inner) if isinstance(inner, dict) else {}
        raw = raw[part]
    raw[path[-1]] = value


# --- other names ---------------------------------------------------------------------------------
def _other_names(raw: Raw, environment: Mapping[str, str], sources: Sources) -> list[SettingError]:
    for name, place in OTHER_NAMES.items():
        if environment.get(name):
            _put(raw, place, environment[name])
            sources.note(place, name)
    problems = []
    order = _order(raw)
    for name, (tier, reached) in PROMOTIONS.items():
        if not environment.get(name):
            continue
        missing = [each for each in (tier, reached) if each not in order]
        if missing:
            problems.append(SettingError("", unknown("tier", missing[0], order), name))
            continue
        path = ("tiers", tier, "promote", reached)
        try:
            _put(raw, path, float(environment[name]))
        except ValueError:
            problems.append(SettingError("", f'needs seconds, not "{environment[name]}"', name))
        sources.note(path, name)
    three = {tier for both in PROMOTIONS.values() for tier in both}
    if any(environment.get(name) for name in PROMOTIONS) and not problems and three <= set(order):
        _promote_low_to_high(raw, sources)
    return problems


def _order(raw: Raw) -> list[str]:
    """The names of the tiers, as far as they are valid."""
    tiers = raw.get("tiers")
    usual = TiersTable().order
    order = words(tiers.get("order", usual)) if isinstance(tiers, dict) else usual
    return order if isinstance(order, list) else usual


def _promote_low_to_high(raw: Raw, sources: Sources) -> None:
    """A low job counts as high once it would have passed both thresholds."""
    usual = tasks().tiers
    steps = [
        raw["tiers"].get(tier, {}).get("promote", usual[tier].promote).get(reached, 0)
        for tier, reached in PROMOTIONS.values()
    ]
    path = ("tiers", "low", "promote", "high")
    _put(raw, path, max((step for step in steps if isinstance(step, int | float)), default=0))
    sources.note(path, " and ".join(PROMOTIONS))
