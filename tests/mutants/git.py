"""What git is asked when mutants are carried: its history, its merge and its diff."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

HUNK_HEADING = re.compile(r"^(@@ [^@]* @@).*$", re.MULTILINE)
MERGE_FAILED = 128
"""`git merge-file` exits with the number of conflicts, and from here on with an error."""


class GitError(Exception):
    """Git refused; the message is what it said."""


class Merged(NamedTuple):
    text: str
    conflicts: int


def run_git(root: Path, *arguments: str, **environment: str) -> bytes:
    done = _git(root, "-c", f"safe.directory={root}", *arguments, **environment)
    if done.returncode != 0:
        raise GitError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def merge(base: str, ours: str, theirs: str) -> Merged:
    """A three-way merge of one file. Where it conflicts, the text shows all three."""
    if ours == base:
        return Merged(theirs, 0)
    with tempfile.TemporaryDirectory(prefix="fairlane-merge-") as folder:
        for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
            (Path(folder) / name).write_text(text, "utf-8")
        labels = ("-L", "the source now", "-L", "the source then", "-L", "with the fault")
        files = ("ours", "base", "theirs")
        done = _git(Path(folder), "merge-file", "-p", "--diff3", *labels, *files)
    text = done.stdout.decode("utf-8")
    if done.returncode >= MERGE_FAILED:
        raise GitError(f"git merge-file: {done.stderr.decode(errors='replace').strip()}")
    return Merged(text if done.returncode == 0 else _conflicts_in(text), done.returncode)


def hunks_of(old: str, new: str, context: int) -> str:
    """A unified diff without the names of the files."""
    with tempfile.TemporaryDirectory(prefix="fairlane-diff-") as folder:
        for name, text in (("old", old), ("new", new)):
            (Path(folder) / name).write_text(text, "utf-8")
        options = ("--no-index", "--no-color", "--no-ext-diff", f"-U{context}")
        done = _git(Path(folder), "diff", *options, "old", "new")
    text = done.stdout.decode("utf-8")
    return HUNK_HEADING.sub(r"\1", text[text.index("\n@@ ") + 1 :]) if "\n@@ " in text else ""


def changed_lines(old: str, new: str) -> list[str]:
    """The lines taken away, after a minus, and those put in, after a plus."""
    return [line for line in hunks_of(old, new, 0).splitlines() if line[:1] in ("-", "+")]


def _conflicts_in(text: str) -> str:
    found = re.findall(r"^<{7} .*?^>{7} [^\n]*\n?", text, re.MULTILINE | re.DOTALL)
    return "\n".join(each.rstrip("\n") for each in found)


def _git(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**inherited, "LC_ALL": "C", **environment},
        capture_output=True,
        check=False,
    )
