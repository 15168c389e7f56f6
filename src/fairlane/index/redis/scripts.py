"""The verbs in Lua, one per file. A header says what a verb does and names its arguments, which the
loader turns into locals; `--@include name` puts in what verbs share, once."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "lua"
INCLUDE = re.compile(r"^--@include (\w+)$")
ARGUMENT = re.compile(r"^-- (KEYS|ARGV) (\w+)(?: (text|number|json|rest))?(?::.*)?$")
READERS = {
    "text": "ARGV[{0}]",
    "number": "tonumber(ARGV[{0}])",
    "json": "cjson.decode(ARGV[{0}])",
    "rest": "{{}} for i = {0}, #ARGV do {1}[i - {0} + 1] = ARGV[i] end",
}
"""How an argument is read: as it is, as a number, as JSON, or all that are left as a list."""


class Script(NamedTuple):
    """A verb as the server runs it, and the names of its arguments in their order."""

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
    source = "\n".join([*named, *_expanded(text, folder, set())])
    sha = hashlib.sha1(source.encode()).hexdigest()  # noqa: S324 - the server's name for a script
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
