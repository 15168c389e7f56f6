"""What was moved and renamed between two versions of the source: a rename map.

    # a comment
    src/fairlane/worker_protocol/service.py → src/fairlane/worker_protocol/service.py
    src/fairlane/worker_protocol/ → src/fairlane/workers/
    s/\\bPullDesk\\b/PullService/
    src/fairlane/index/: s/\\bdesk\\b/service_queue/

A path that ends with a slash is a folder. Paths are those of the old version. `s/…/…/` is a Python
regular expression and its replacement, applied line by line; a path before it limits it to that
file or folder. A file that was split has one line for each new file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MOVE = re.compile(r"(\S+)\s*(?:→|->|=)\s*(\S+)")
RULE = re.compile(r"(?:(\S+):\s+)?s([^\w\s\\])(.*)")


class BrokenMap(Exception):
    """The rename map cannot be read; the message says which line, and what would be right."""


class Rule(NamedTuple):
    """A rename of identifiers, in the files that begin with `under`."""

    under: str
    pattern: re.Pattern[str]
    replacement: str


class RenameMap(NamedTuple):
    moves: tuple[tuple[str, str], ...] = ()
    rules: tuple[Rule, ...] = ()

    def moved(self, path: str) -> list[str]:
        """Where the map says that this file went. A line for the file wins over its folders, and a
        deeper folder over the ones above it."""
        exact = [new for old, new in self.moves if old == path]
        if exact:
            return exact
        folders = [(old, new) for old, new in self.moves if _is_inside(path, old)]
        deepest = max((len(old) for old, _ in folders), default=0)
        return [new + path[len(old) :] for old, new in folders if len(old) == deepest]

    def renamed(self, path: str, text: str) -> str:
        """The text of this file of the old version, with the names of the new one."""
        for rule in self.rules:
            if path == rule.under or _is_inside(path, rule.under):
                lines = text.split("\n")
                text = "\n".join(rule.pattern.sub(rule.replacement, line) for line in lines)
        return text

    def joined(self, other: RenameMap) -> RenameMap:
        return RenameMap((*self.moves, *other.moves), (*self.rules, *other.rules))


def read_map(text: str) -> RenameMap:
    moves, rules = [], []
    for number, line in enumerate(text.splitlines(), 1):
        said = line.strip()
        if not said or said.startswith("#"):
            continue
        if rule := RULE.fullmatch(said):
            rules.append(_rule(rule[1] or "", rule[2], rule[3], number))
        elif move := MOVE.fullmatch(said):
            moves.append(_move(move[1], move[2]))
        else:
            raise BrokenMap(f'line {number}: write "old/path → new/path" or "s/old/new/": {said}')
    return RenameMap(tuple(moves), tuple(rules))


def read_moves(given: Iterable[str]) -> RenameMap:
    """From `old=new`, as on the command line."""
    moves = []
    for each in given:
        old, _, new = each.partition("=")
        if not old or not new:
            raise BrokenMap(f'write "--moved old/path=new/path", not "{each}"')
        moves.append(_move(old, new))
    return RenameMap(tuple(moves))


def _move(old: str, new: str) -> tuple[str, str]:
    if old.endswith("/") != new.endswith("/"):
        raise BrokenMap(f"a folder moves to a folder, and both end with a slash: {old} → {new}")
    return old, new


def _rule(under: str, mark: str, rest: str, number: int) -> Rule:
    parts = re.split(rf"(?<!\\){re.escape(mark)}", rest)
    if len(parts) != 3 or parts[2] not in ("", "g") or not parts[0]:
        raise BrokenMap(f"line {number}: write s{mark}old{mark}new{mark}, not s{mark}{rest}")
    old, new = (part.replace(f"\\{mark}", mark) for part in parts[:2])
    try:
        pattern = re.compile(old)
        pattern.sub(new, "")
    except re.error as error:
        raise BrokenMap(f"line {number}: {old} is no regular expression: {error}") from error
    return Rule(under, pattern, new)


def _is_inside(path: str, folder: str) -> bool:
    return not folder or (folder.endswith("/") and path.startswith(folder))
