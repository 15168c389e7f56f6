"""Deltas between two frames: which paths have another value, and which are gone. A path is its keys
joined by `/`, escaped as in JSON Pointer (RFC 6901), without the first slash."""

from __future__ import annotations

from typing import Any, NamedTuple

Json = Any


class Delta(NamedTuple):
    """`set` has the new value of each changed path; a new key is set with its whole value, and a
    list is one value. `gone` are the paths that no longer exist."""

    set: dict[str, Json]
    gone: list[str]


def difference(old: dict[str, Json], new: dict[str, Json]) -> Delta:
    delta = Delta({}, [])
    _compare(old, new, "", delta)
    return delta


def _compare(old: dict[str, Json], new: dict[str, Json], prefix: str, delta: Delta) -> None:
    for key, value in new.items():
        known = old.get(key, MISSING)
        if known == value:
            continue
        path = f"{prefix}{escaped(key)}"
        if isinstance(value, dict) and isinstance(known, dict):
            _compare(known, value, f"{path}/", delta)
        else:
            delta.set[path] = value
    for key in old:
        if key not in new:
            delta.gone.append(f"{prefix}{escaped(key)}")


MISSING = object()
"""Stands for a key that was not there. None is a value."""


def escaped(key: str) -> str:
    if "~" in key or "/" in key:
        return key.replace("~", "~0").replace("/", "~1")
    return key


def applied(frame: dict[str, Json], delta: Delta) -> dict[str, Json]:
    """The frame after this delta."""
    changed: dict[str, Json] = _copied(frame)
    for path, value in delta.set.items():
        *parents, last = map(_unescaped, path.split("/"))
        here = changed
        for key in parents:
            here = here[key]
        here[last] = value
    for path in delta.gone:
        *parents, last = map(_unescaped, path.split("/"))
        here = changed
        for key in parents:
            here = here[key]
        del here[last]
    return changed


def _copied(value: Json) -> Json:
    return {key: _copied(each) for key, each in value.items()} if isinstance(value, dict) else value


def _unescaped(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")
