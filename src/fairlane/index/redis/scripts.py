"""The loader of the Lua scripts, one file per operation. The header of a file describes the
operation and declares its arguments, which the loader turns into locals. `--@include name` inserts
a shared file, once per script.

A script defines its functions again on every run, so the loader leaves out unused functions and
replaces names in capitals by their values. Numbers that decide the order come from
`shared_constants.py`; scripts do not repeat them."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fairlane.index.redis.shared_constants import SHARED_CONSTANTS

FOLDER = Path(__file__).parent / "lua"
INCLUDE = re.compile(r"^--@include (\w+)$")
ARGUMENT = re.compile(r"^-- (KEYS|ARGV) (\w+)(?: (text|number|json|rest))?(?::.*)?$")
CACHE_ONLY = "if not KEYS[1] then return end"
"""The first line of every script: without keys it does nothing, but the server caches it."""

READERS = {
    "text": "ARGV[{0}]",
    "number": "tonumber(ARGV[{0}])",
    "json": "cjson.decode(ARGV[{0}])",
    "rest": "{{unpack(ARGV, {0}, math.min(#ARGV, 4000))}} "  # allocates the table at once
    "for i = #{1} + {0}, #ARGV do {1}[i - {0} + 1] = ARGV[i] end",
}
"""How an argument is read: as a string, as a number, as JSON, or all remaining ones as a list."""

FUNCTION = re.compile(r"^(?:local )?function ([\w.]+)\(")
VALUE = r"(?:'[^',]*'|\d+)"
CONSTANTS = re.compile(rf"^local ([A-Z][A-Z_, ]+) = ({VALUE}(?:, {VALUE})*)(?: +--.*)?$")
CAPITALS = re.compile(r"(?<!['\w])[A-Z][A-Z_]+(?!['\w])")


class Script(NamedTuple):
    """A script as the server runs it, and the names of its arguments in order."""

    name: str
    source: str
    sha: str
    arguments: tuple[str, ...]


@cache
def load(name: str, folder: Path = FOLDER) -> Script:
    text = (folder / f"{name}.lua").read_text("utf-8")
    declared = [found for line in text.splitlines() if (found := ARGUMENT.match(line))]
    arguments = [found for found in declared if found[1] == "ARGV"]
    named = [f"local {found[2]} = KEYS[1]" for found in declared if found[1] == "KEYS"]
    named += [
        f"local {found[2]} = {READERS[found[3] or 'text'].format(number, found[2])}"
        for number, found in enumerate(arguments, start=1)
    ]
    lines = [line for line in _expanded(text, folder, set()) if not line.lstrip().startswith("--")]
    source = "\n".join([CACHE_ONLY, *named, *_in_use(_with_values(lines))])
    sha = hashlib.sha1(source.encode()).hexdigest()  # noqa: S324 - Redis names scripts by it
    return Script(name, source, sha, tuple(found[2] for found in arguments))


def names(folder: Path = FOLDER) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.lua"))


def _expanded(text: str, folder: Path, seen: set[str]) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines():
        found = INCLUDE.match(line)
        if found is None:
            lines.append(line)
        elif found[1] not in seen:
            seen.add(found[1])
            shared = (folder / "include" / f"{found[1]}.lua").read_text("utf-8")
            lines += _expanded(shared, folder, seen)
    return lines


def _with_values(lines: list[str]) -> list[str]:
    """Replace names in capitals by their values: shared constants and those of the scripts."""
    values = {name: str(value) for name, value in SHARED_CONSTANTS.items()}
    for line in lines:
        if found := CONSTANTS.match(line):
            values |= zip(found[1].split(", "), found[2].split(", "), strict=True)
    return [
        CAPITALS.sub(lambda name: values.get(name[0], name[0]), line)
        for line in lines
        if not CONSTANTS.match(line)
    ]


def _in_use(lines: list[str]) -> list[str]:
    """Leave out functions that are not referenced. A top-level function ends with the next `end` at
    the beginning of a line, or is one line long."""
    blocks: list[tuple[str, list[str]]] = []
    is_open = False
    for line in lines:
        found = FUNCTION.match(line)
        if found or not is_open:
            blocks.append((found[1] if found else "", [line]))
        else:
            blocks[-1][1].append(line)
        is_open = line != "end" and (is_open or (found is not None and not line.endswith(" end")))
    bodies = {name: "\n".join(body) for name, body in blocks if name}
    used = set[str]()
    looked_at = ["\n".join(body) for name, body in blocks if not name]
    while looked_at:
        for name in bodies.keys() & set(re.findall(r"[\w.]+", looked_at.pop())) - used:
            used.add(name)
            looked_at.append(bodies[name])
    return [line for name, body in blocks if not name or name in used for line in body]
