"""Validation errors of the settings: every mistake, its place, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fairlane.config.file_schema import File, TiersTable
from fairlane.errors import SetupError

Path = tuple[str, ...]


class SettingError(NamedTuple):
    """`place` is a setting's path; `source` the file, variable or flag that it came from."""

    place: str
    text: str
    source: str

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source else ""
        return f"{where}{self.place}: {self.text}" if self.place else f"{where}{self.text}"


class BadSettings(SetupError):
    """All mistakes, one per line."""

    code = "bad_settings"

    def __init__(self, problems: Sequence[SettingError]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


class Sources:
    """The source of each setting: the longest known prefix of its path decides."""

    def __init__(self, default: str) -> None:
        self._default = default
        self._known: dict[Path, str] = {}

    def note(self, path: Path, source: str) -> None:
        self._known[path] = source

    def of(self, path: Path) -> str:
        for end in range(len(path), 0, -1):
            if path[:end] in self._known:
                return self._known[path[:end]]
        return self._default


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: a close match, or the known names."""
    names = list(known)
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    if close:
        return f'; did you mean "{close[0]}"?'
    return f"; known: {', '.join(sorted(names))}" if names else ""


REMOVED = {
    ("tiers", "weight"): "this setting was removed, it could only be 1; delete the line",
}
"""Settings that older versions had, by table and name."""


def from_validation(error: ValidationError, sources: Sources) -> list[SettingError]:
    return [_problem(each, sources) for each in error.errors(include_url=False)]


def _problem(error: ErrorDetails, sources: Sources) -> SettingError:
    path = tuple(str(part) for part in error["loc"])
    text = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden" and (path[0], path[-1]) in REMOVED:
        text = REMOVED[path[0], path[-1]]
    elif error["type"] == "extra_forbidden":
        text = "no such setting" + suggestion(path[-1], _settings_at(path[:-1]))
    elif error["type"] == "model_type" and len(path) == 2 and path[0] == "tiers":
        text = "no such setting" + suggestion(path[-1], TiersTable.model_fields)
    elif error["type"] == "model_type":
        text = "a table is needed here"
    elif not error["type"].startswith("value_error"):
        text = f"{text[:1].lower()}{text[1:]}"
        if not _may_hold_a_secret(path):
            text += f", not {_shown(error['input'])}"
    return SettingError(".".join(path), text, sources.of(path))


def _may_hold_a_secret(path: Path) -> bool:
    holders = {"headers", "broker_transport_options", "result_backend_transport_options"}
    return not holders.isdisjoint(path) or path[-1].endswith(("url", "result_backend"))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _settings_at(path: Path) -> list[str]:
    """The names of the settings in the table at this path."""
    kind: Any = File
    for part in path:
        field = getattr(kind, "model_fields", {}).get(part)
        kind = _inside(field.annotation) if field is not None else kind
    return list(getattr(kind, "model_fields", {}))


def _inside(annotation: Any) -> Any:
    """The table behind `Table`, `Table | None` or `dict[str, Table]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = getattr(annotation, "__args__", ())
    found = [_inside(each) for each in inner]
    return next((each for each in found if each is not None), None)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return f'{kind} "{name}" is not configured' + suggestion(name, known)
