"""Carries mutants across moves, renames and line changes of the source.

Each fault is planted in the source at `--base`, and merged into the working tree as git merges two
branches. Files that moved are found by git's rename detection, by `--moved` and by the rename map,
whose identifier renames are applied before the merge. The patch is then written anew. A mutant that
does not merge cleanly, or that names something the source no longer has, is a conflict: it is shown
and left as it is."""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tests.mutants.git import GitError, changed_lines, hunks_of, merge, run_git
from tests.mutants.mutant import ROOT, TEST, BrokenMutant, Hunk, Mutant, blocks_of, read_text
from tests.mutants.renames import BrokenMap, RenameMap, read_map, read_moves

PATCHES = "tests/mutants"
MAX_CONTEXT_LINES = 25
MIN_UNIQUE_CHARACTERS = 20
"""Fewer do not say which line is meant: `return None` may be another one."""

SIMILARITY_PERCENT = 30
"""What git takes for a moved file. Low, because a wrong one does not merge."""

WORD = re.compile(r"[A-Za-z_]\w{2,}")

Texts = Mapping[str, str]


class Outcome(StrEnum):
    CARRIED = "carried"
    UNCHANGED = "unchanged"
    CONFLICT = "CONFLICT"


class Result(NamedTuple):
    name: str
    outcome: Outcome
    remark: str = ""
    patch: str = ""
    """The patch, written anew."""


class Conflict(Exception):
    """The mutant cannot be carried; the message shows why."""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    options = parser().parse_args(argv)
    try:
        renames = read_moves(options.moved)
        if options.rename_map:
            renames = renames.joined(read_map(Path(options.rename_map).read_text("utf-8")))
        carrier = Carrier(root, options.base, renames)
        results = list(carrier.carried(options.only))
    except (BrokenMap, GitError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for result in results:
        if result.outcome is Outcome.CARRIED and not options.dry_run:
            (root / PATCHES / f"{result.name}.patch").write_text(result.patch, "utf-8")
        if result.remark or result.outcome is not Outcome.UNCHANGED:
            first, *more = result.remark.splitlines() or [""]
            print(f"{result.outcome:<10}{result.name}  {first}".rstrip())
            print("".join(f"          {line}\n" for line in more), end="")
    count = {each: sum(result.outcome is each for result in results) for each in Outcome}
    print(", ".join(f"{number} {outcome.lower()}" for outcome, number in count.items()))
    return 1 if count[Outcome.CONFLICT] else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="make mutants ARGS='carry …'",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exits with 0 if every mutant fits the working tree now, 1 if there are conflicts, "
        "2 if a\nquestion was wrong. The rename map is described in tests/mutants/renames.py.",
    )
    made.add_argument("--base", required=True, metavar="REV", help="what the patches were made for")
    made.add_argument("--moved", action="append", default=[], metavar="OLD=NEW", help="may repeat")
    made.add_argument("--rename-map", metavar="FILE", help="moves and identifier renames")
    made.add_argument("--only", default="", metavar="NAME", help="those whose name begins so: i07")
    made.add_argument(
        "--dry-run", action="store_true", help="say what would be done, write nothing"
    )
    return made


class Carrier:
    """Mutants of one version of the source, and the working tree they are carried to."""

    def __init__(self, root: Path, base: str, renames: RenameMap) -> None:
        self.root, self.base, self.renames = root, base, renames
        self.beside: set[str] = set()
        """Files of the present mutant where the lines beside the fault have changed."""

    def carried(self, beginning: str = "") -> Iterator[Result]:
        for path in sorted((self.root / PATCHES).glob(f"{beginning}*.patch")):
            try:
                yield self.carry(path.stem, path.read_text("utf-8"))
            except (BrokenMutant, Conflict) as error:
                yield Result(path.stem, Outcome.CONFLICT, str(error))

    def carry(self, name: str, patch: str) -> Result:
        self.beside.clear()
        mutant = read_text(name, patch)
        test = self.test_now(mutant.test)
        if not fits(mutant, self.old):
            if fits(mutant, self.now):  # made for the working tree, or carried before
                after = planted(mutant, self.now)
            else:
                mutant = self.as_it_was(mutant)
                after = self.merged(mutant)
        else:
            after = self.merged(mutant)
        self.check(mutant, after)
        return self.result(mutant, patch, test, after)

    def result(self, mutant: Mutant, patch: str, test: str, after: Texts) -> Result:
        present = read_text(mutant.name, patch)
        if test == present.test and fits(present, self.now) and planted(present, self.now) == after:
            return Result(mutant.name, Outcome.UNCHANGED, self.doubts(mutant, after))
        anew = head_of(patch, test) + self.diff(mutant.name, patch, after)
        said = [f"to {file}" for file in sorted(set(after) - {each.file for each in present.hunks})]
        if test != present.test:
            said.append(f"test: {test}")
        said.append(self.doubts(mutant, after))
        return Result(mutant.name, Outcome.CARRIED, "; ".join(filter(None, said)), anew)

    def as_it_was(self, mutant: Mutant) -> Mutant:
        """The mutant at the base: what was carried once, and whose source has changed again."""
        kept = self.old.get(f"{PATCHES}/{mutant.name}.patch")
        if kept is None:
            raise Conflict(
                f"fits neither {self.base} nor the working tree, and is not in the former"
            )
        old = read_text(mutant.name, kept)
        if not fits(old, self.old):
            raise Conflict(f"fits neither {self.base} nor the working tree")
        return old

    # ── what there was, and what there is ─────────────────────────────────────────────────────

    @cached_property
    def old(self) -> Texts:
        packed = run_git(self.root, "archive", "--format=tar", self.base)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            files = ((each.name, archive.extractfile(each)) for each in archive if each.isfile())
            return {name: text_of(file.read()) for name, file in files if file is not None}

    @cached_property
    def now(self) -> Texts:
        listed = run_git(self.root, "ls-files", "-co", "--exclude-standard", "-z").decode()
        paths = [name for name in listed.split("\0") if name and (self.root / name).is_file()]
        return {name: text_of((self.root / name).read_bytes()) for name in paths}

    @cached_property
    def found_by_git(self) -> dict[str, dict[str, list[str]]]:
        """R (renamed) and C (copied): from each file of the base to those of the working tree. An
        index of its own, so that files that are not added yet count."""
        with tempfile.TemporaryDirectory(prefix="fairlane-carry-") as folder:
            index = {"GIT_INDEX_FILE": f"{folder}/index"}
            run_git(self.root, "read-tree", self.base, **index)
            run_git(self.root, "add", "--all", **index)
            likeness = (f"-M{SIMILARITY_PERCENT}%", f"-C{SIMILARITY_PERCENT}%", "-l0")
            asked = ("diff", "--cached", "--name-status", "-z", *likeness, self.base)
            fields = iter(run_git(self.root, *asked, **index).decode().split("\0"))
        found: dict[str, dict[str, list[str]]] = {"R": {}, "C": {}}
        for status in fields:
            if status[:1] in found:
                found[status[0]].setdefault(next(fields), []).append(next(fields))
            elif status:
                next(fields)
        return found

    def candidates(self, path: str) -> Iterator[list[str]]:
        """Where a file of the base may be now, the surest first."""
        yield self.renames.moved(path)
        yield [path]
        yield self.found_by_git["R"].get(path, [])
        yield self.found_by_git["C"].get(path, [])

    # ── the fault ─────────────────────────────────────────────────────────────────────────────

    def merged(self, mutant: Mutant) -> dict[str, str]:
        """The files of the working tree that the fault changes, with the fault in them."""
        after: dict[str, str] = {}
        for file in dict.fromkeys(hunk.file for hunk in mutant.hunks):
            of_file = [hunk for hunk in mutant.hunks if hunk.file == file]
            try:
                self.plant(file, of_file, after)
            except Conflict:
                if len(of_file) == 1:
                    raise
                for hunk in of_file:  # perhaps the file was split
                    self.plant(file, [hunk], after)
        return after

    def plant(self, file: str, hunks: Sequence[Hunk], after: dict[str, str]) -> None:
        refused = []
        for several in self.candidates(file):
            clean = {}
            for target in dict.fromkeys(several):
                if target not in self.now:
                    continue
                try:
                    ours = after.get(target, self.now[target])
                    clean[target] = self.merge_into(target, ours, file, hunks)
                except Conflict as error:
                    refused.append(f"{target}:\n{error}")
            if len(clean) > 1:
                raise Conflict(f"{file} merges into {', '.join(clean)}: name one with --moved")
            if clean:
                after.update(clean)
                return
        lines = "".join(hunk.old for hunk in hunks).strip("\n")
        raise Conflict(
            "\n".join(refused)
            or f"{file} is gone: name the file that has these lines now with --moved\n{lines}"
        )

    def merge_into(self, target: str, ours: str, file: str, hunks: Sequence[Hunk]) -> str:
        base = self.old[file]
        theirs = applied(hunks, base)
        refused: Conflict | None = None
        versions = list(self.versions(file, base, theirs, unchanged=ours == base))
        for before, mutated in versions:
            try:
                return merged_alike(before, ours, mutated)
            except Conflict as error:
                refused = refused or error
        for before, mutated in versions:
            if (found := replaced_alike(before, ours, mutated)) is not None:
                self.beside.add(target)
                return found
        raise refused or Conflict(f"{target}: nothing to merge")

    def versions(
        self, file: str, base: str, theirs: str, *, unchanged: bool
    ) -> Iterator[tuple[str, str]]:
        """The file of the base without and with the fault: as it was, if no rename concerns what
        the fault puts in; with the new names; and with these as `ruff format` breaks the lines."""
        put_in = "\n".join(put_in_by(base, theirs))
        if unchanged or self.renames.renamed(file, put_in) == put_in:
            yield base, theirs
        before, mutated = self.renames.renamed(file, base), self.renames.renamed(file, theirs)
        if before != base:
            yield before, mutated
            before, mutated = formatted(before, self.root), formatted(mutated, self.root)
            if file.endswith(".py") and before != mutated:
                yield before, mutated

    def check(self, mutant: Mutant, after: Texts) -> None:
        """That the fault is still a fault, and not a name that is no more."""
        put_in = [line for file, text in after.items() for line in put_in_by(self.now[file], text)]
        gone = words_in(put_in) & self.words_gone
        if gone:
            raise Conflict(
                f"it puts in what is nowhere in the source any more: {', '.join(sorted(gone))}\n"
                "Add the rename to the map: s/\\bold\\b/new/"
            )
        for file, text in after.items():
            if file.endswith(".py"):
                try:
                    compile(text, file, "exec")
                except SyntaxError as error:
                    raise Conflict(f"{mutant.name} is no Python any more: {error}") from error
                if self.now[file] == self.old.get(file):
                    continue
                unknown = undefined(text, self.root) - undefined(self.now[file], self.root)
                if unknown:
                    raise Conflict(
                        f"{file} does not know these names: {', '.join(sorted(unknown))}"
                    )

    def doubts(self, mutant: Mutant, after: Texts) -> str:
        """What a reader should look at: changes right beside the fault, and words that it puts in
        which the file had at the base and has no more. These may be old names of something."""
        then = words_in(self.old.get(hunk.file, "") for hunk in mutant.hunks)
        doubtful: set[str] = set()
        for file, text in after.items():
            doubtful |= words_in(put_in_by(self.now[file], text)) & then - words_in(
                [self.now[file]]
            )
        said = [f"the lines beside it in {file}" for file in sorted(self.beside)]
        said += [f'the word "{word}"' for word in sorted(doubtful)]
        return f"look at {', '.join(said)}" if said else ""

    @cached_property
    def words_gone(self) -> set[str]:
        """Words that the source had at the base and has no more."""
        return words_of_source(self.old) - words_of_source(self.now)

    # ── the patch and its test ────────────────────────────────────────────────────────────────

    def diff(self, name: str, patch: str, after: Texts) -> str:
        """With as little context as makes every hunk stand exactly once."""
        files = [(file, self.now[file], text) for file, text in after.items()]
        for context in range(1, MAX_CONTEXT_LINES + 1):
            anew = "".join(
                f"--- a/{file}\n+++ b/{file}\n{hunks_of(before, text, context)}"
                for file, before, text in files
            )
            mutant = read_text(name, head_of(patch, read_text(name, patch).test) + anew)
            if fits(mutant, self.now) and planted(mutant, self.now) == after:
                return anew
        raise Conflict("its lines do not stand there exactly once: write it by hand")

    def test_now(self, test: str) -> str:
        """The `file.py::test_…[…]` that must notice, where it is now."""
        file, _, name = test.partition("::")
        plain, bracket, parameters = name.partition("[")
        names = list(dict.fromkeys([self.renames.renamed(file, plain), plain]))
        for several in self.candidates(file):
            for target in several:
                for each in names:
                    if each in tests_in(self.now.get(target, "")):
                        return f"{target}::{each}{bracket}{parameters}"
        tests = {path: tests_in(text) for path, text in self.now.items() if path.endswith(".py")}
        found = [(path, each) for each in names for path, known in tests.items() if each in known]
        if len(found) == 1:
            return f"{found[0][0]}::{found[0][1]}{bracket}{parameters}"
        every = sorted({each for known in tests.values() for each in known})
        alike = ", ".join(get_close_matches(plain, every, 3)) or "nothing alike"
        raise Conflict(
            f"its test is {'in several files' if found else 'nowhere'}: {test}\n"
            f"Add its rename to the map: s/\\b{plain}\\b/…/ (there is: {alike})"
        )


def fits(mutant: Mutant, texts: Texts) -> bool:
    try:
        planted(mutant, texts)
    except BrokenMutant:
        return False
    return True


def planted(mutant: Mutant, texts: Texts) -> dict[str, str]:
    """The files that the mutant changes, with the fault in them."""
    after: dict[str, str] = {}
    for hunk in mutant.hunks:
        if hunk.file not in texts:
            raise BrokenMutant(f"{hunk.file}, hunk {hunk.number}: there is no such file")
        after[hunk.file] = applied([hunk], after.get(hunk.file, texts[hunk.file]))
    return after


def applied(hunks: Iterable[Hunk], text: str) -> str:
    for hunk in hunks:
        text = hunk.applied_to("\n" + text)[1:]
    return text


def merged_alike(base: str, ours: str, theirs: str) -> str:
    """The merge, if it is clean and changes the very lines that the fault changes."""
    done = merge(base, ours, theirs)
    if done.conflicts:
        raise Conflict(done.text)
    wanted = sorted(changed_lines(base, theirs))
    if sorted(changed_lines(ours, done.text)) != wanted:
        lines = "\n".join(wanted)
        raise Conflict(f"the source reads like the fault already, or the fault is torn:\n{lines}")
    return done.text


def replaced_alike(base: str, ours: str, theirs: str) -> str | None:
    """Where a merge is not clean because the lines beside the fault have changed too: the fault, if
    the lines that it takes away stood exactly once then and stand exactly once now."""
    for context in (0, 1):
        blocks = list(blocks_of(hunks_of(base, theirs, context)))
        if all(is_unique(old, base) and is_unique(old, ours) for old, _ in blocks):
            for old, new in blocks:
                ours = ("\n" + ours).replace(old, new)[1:]
            return ours
    return None


def is_unique(block: str, text: str) -> bool:
    return len(block.strip()) >= MIN_UNIQUE_CHARACTERS and ("\n" + text).count(block) == 1


def formatted(text: str, root: Path) -> str:
    """As `ruff format` writes it, or as it is where there is no ruff."""
    told = ruff(text, root, "format")
    return told.stdout if told.returncode == 0 else text


def ruff(text: str, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename=a.py", "-"]
    return subprocess.run(
        command, cwd=root, input=text, capture_output=True, encoding="utf-8", check=False
    )


def head_of(patch: str, test: str) -> str:
    """What stands before the diff, with this test. What git writes above a diff is left out."""
    head = patch.partition("--- a/")[0]
    lines = [line for line in head.splitlines() if line.startswith("#")]
    return "".join(f"{line}\n" for line in lines).replace(
        TEST.search(head)[0],  # type: ignore[index]
        f"# test: {test}",
    )


def tests_in(text: str) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


def put_in_by(old: str, new: str) -> list[str]:
    return [line[1:] for line in changed_lines(old, new) if line.startswith("+")]


def undefined(text: str, root: Path) -> set[str]:
    """Names that are used in this module and defined nowhere, says ruff."""
    told = ruff(text, root, "check", "--isolated", "--select=F821", "--output-format=json")
    return {found["message"] for found in json.loads(told.stdout or "[]")}


def words_of_source(texts: Texts) -> set[str]:
    return words_in(text for file, text in texts.items() if file.startswith("src/"))


def words_in(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in WORD.findall(text)}


def text_of(content: bytes) -> str:
    return "" if b"\0" in content else content.decode("utf-8", errors="replace")
