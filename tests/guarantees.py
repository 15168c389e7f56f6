"""Which tests and mutants hold each promise: the last two columns of docs/guarantees.md, and the
links below its tables.

    python -m tests.guarantees --write

A file of tests holds a promise if one of its docstrings names the number ("I7: …"), or if a mutant
of the promise names a test in it. The numbers and the sentences of the page are written by hand."""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutant import patches, read

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guarantees.md"
TESTS = ROOT / "tests"

NUMBER = re.compile(r"\b([IS])(\d{1,2})(?: ?(?:to|–) ?\1(\d{1,2}))?\b")
ROW = re.compile(r"^\| ([IS]\d+|policy) \| ([^|]+?) \|.*$", re.MULTILINE)
LINKS = "<!-- Links, and the columns of tests and mutants: python -m tests.guarantees --write -->\n"
NOT_YET = "not yet"


class Evidence(NamedTuple):
    """What holds one promise: files of tests, and how many mutants."""

    files: tuple[str, ...] = ()
    mutants: int = 0


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.guarantees", description=__doc__)
    parser.add_argument("--write", action="store_true", help="bring docs/guarantees.md up to date")
    options = parser.parse_args(argv)
    present, wanted = PAGE.read_text("utf-8"), page()
    if present == wanted:
        return 0
    if options.write:
        PAGE.write_text(wanted, "utf-8")
        return 0
    print("docs/guarantees.md is out of date: python -m tests.guarantees --write", file=sys.stderr)
    return 1


def page() -> str:
    """The page as it should be: its own sentences, with the tests and mutants there are."""
    found = evidence()
    by_hand = PAGE.read_text("utf-8").partition(LINKS)[0]
    rows = ROW.sub(lambda row: shown(row[1], row[2], found.get(row[1], Evidence())), by_hand)
    files = sorted({file for each in found.values() for file in each.files})
    links = "".join(f"[{short(file)}]: ../{file}\n" for file in files)
    return f"{rows.rstrip()}\n\n{LINKS}\n{links}"


def promises() -> list[str]:
    """Those that have a row on the page, in its order."""
    return [row[1] for row in ROW.finditer(PAGE.read_text("utf-8"))]


def shown(promise: str, sentence: str, held_by: Evidence) -> str:
    tests = ", ".join(f"[{short(file)}]" for file in held_by.files) or NOT_YET
    mutants = held_by.mutants or NOT_YET
    return f"| {promise} | {sentence} | {tests} | {mutants} |"


def short(file: str) -> str:
    """tests/conformance/test_limits.py is shown as conformance/limits. What tests share keeps its
    whole name."""
    path = Path(file).relative_to("tests")
    if not path.name.startswith("test_"):
        return path.as_posix()
    return path.with_name(path.stem.removeprefix("test_")).as_posix()


def evidence() -> dict[str, Evidence]:
    files: dict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("*.py")):
        if path.is_relative_to(TESTS / "mutants") or path == Path(__file__).resolve():
            continue
        for promise in named_in_file(path.read_text("utf-8")):
            files[promise].add(path.relative_to(ROOT).as_posix())
    mutants: Counter[str] = Counter()
    for patch in patches():
        mutant = read(patch)
        mutants[mutant.promise] += 1
        files[mutant.promise].add(mutant.test.partition("::")[0])
    return {each: Evidence(tuple(sorted(files[each])), mutants[each]) for each in files}


def named_in_file(source: str) -> set[str]:
    """What the docstrings of a file and of the functions and classes in it name."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return {each for node in nodes for each in named(ast.get_docstring(node) or "")}


def named(text: str) -> Iterator[str]:
    """I7 names one promise, "I9 to I12" four."""
    for kind, first, last in NUMBER.findall(text):
        for number in range(int(first), int(last or first) + 1):
            yield f"{kind}{number}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
