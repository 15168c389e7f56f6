"""A mutant: a promise, a patch that breaks it, and the test that must notice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent

PROMISE = re.compile(r"# ([IS]\d+|policy): (\S.*)")
TEST = re.compile(r"# test: (\S+\.py::\S.*)")
STORES = re.compile(r"# stores: (postgres|cluster)")


class BrokenMutant(Exception):
    """The patch cannot be read or does not fit the source; the message says where."""


class Hunk(NamedTuple):
    """Lines of one file, and what they become. Line numbers are not believed: the lines themselves
    say where they are."""

    file: str
    number: int
    old: str
    new: str

    def applied_to(self, text: str) -> str:
        found = text.count(self.old)
        if found != 1:
            lines = self.old.strip("\n")
            raise BrokenMutant(
                f"{self.file}, hunk {self.number}: these lines must be there once, "
                f"and are {found} times:\n{lines}"
            )
        return text.replace(self.old, self.new)


class Mutant(NamedTuple):
    name: str
    promise: str
    fault: str
    test: str
    hunks: tuple[Hunk, ...]
    stores: str = "embedded"
    """What its test stands on."""

    def apply(self, root: Path) -> None:
        """Plant the fault in the copy of the source below `root`."""
        for hunk in self.hunks:
            file = root / hunk.file
            if not file.is_file():
                raise BrokenMutant(f"{hunk.file}, hunk {hunk.number}: there is no such file")
            text = "\n" + file.read_text("utf-8")
            file.write_text(hunk.applied_to(text)[1:], "utf-8")


def patches() -> list[Path]:
    return sorted(FOLDER.glob("*.patch"))


def read(path: Path) -> Mutant:
    """The mutant in this file: lines that say what it is, then a unified diff."""
    return read_text(path.stem, path.read_text("utf-8"))


def read_text(name: str, patch: str) -> Mutant:
    head, _, diff = patch.partition("--- a/")
    promise = PROMISE.search(head)
    test = TEST.search(head)
    if promise is None or test is None:
        raise BrokenMutant(
            'it must begin with "# I7: what is broken" and "# test: file.py::test_…"'
        )
    hunks = tuple(_hunks(f"--- a/{diff}")) if diff else ()
    if not hunks:
        raise BrokenMutant("it changes nothing: no hunk found")
    stores = STORES.search(head)
    stands_on = stores[1] if stores else "embedded"
    number = re.sub(r"(?<=[IS])0+", "", promise[1])  # I06 is I6
    return Mutant(name, number, promise[2], test[1], hunks, stands_on)


def _hunks(diff: str) -> Iterator[Hunk]:
    for of_file in re.split(r"^--- a/", diff, flags=re.MULTILINE)[1:]:
        file = of_file.splitlines()[0].strip()
        for number, (old, new) in enumerate(blocks_of(of_file), 1):
            yield Hunk(file, number, old, new)


def blocks_of(diff: str) -> Iterator[tuple[str, str]]:
    """The lines of each hunk of one file, and what they become."""
    for body in re.split(r"^@@.*\n", f"\n{diff}", flags=re.MULTILINE)[1:]:
        lines = body.splitlines()
        yield _side(lines, " -"), _side(lines, " +")


def _side(lines: list[str], kept: str) -> str:
    """Whole lines, from line break to line break."""
    return "\n" + "".join(f"{line[1:]}\n" for line in lines if (line or " ")[0] in kept)
