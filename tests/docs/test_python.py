"""The Python blocks of a page are one program, and it prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, blocks, name_of, pages, run_blocks
from tests.docs.shell import save_files

PRINTED = re.compile(r"# → (.*)$", re.MULTILINE)
LIMIT_SECONDS = 60
WITH_PROGRAMS = [page for page in pages() if run_blocks(page, "python")]
LONG = {
    DOCS / "recipes.md",
    DOCS / "coming-from" / "temporal.md",
    DOCS / "guides" / "inference.md",
    DOCS / "guides" / "simulate.md",
}
"""The pages whose programs take longest. Not in `make test`: `python3 dev.py docs test`."""


def programs() -> list[object]:
    return [
        pytest.param(page, id=name_of(page), marks=pytest.mark.long if page in LONG else ())
        for page in WITH_PROGRAMS
    ]


@pytest.mark.parametrize("page", programs())
def test_every_python_block_runs_and_prints_what_its_page_says(page: Path, tmp_path: Path) -> None:
    """The line numbers of the program are those of the page."""
    save_files(page, tmp_path)
    (tmp_path / "page.py").write_text(program(page), "utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "error", "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, f"{name_of(page)}:\n{done.stdout}{done.stderr}"
    assert done.stdout.splitlines() == expected(page), name_of(page)


def program(page: Path) -> str:
    """Without the files that the shell session of the page runs (`python3 order.py`)."""
    typed = "".join(block.text for block in run_blocks(page, "bash"))
    text = ""
    for block in run_blocks(page, "python"):
        if block.file_name and f"python3 {block.file_name}" in typed:
            continue
        text += "\n" * (block.line - text.count("\n")) + block.text
    return text


def expected(page: Path) -> list[str]:
    """What the comments say, or the whole output in a `text` block after a Python block."""
    every = blocks(page)
    for block, following in pairwise(every):
        if block.language == "python" and following.language == "text" and following.follows:
            return following.text.splitlines()
    return PRINTED.findall(program(page))


def test_there_are_programs() -> None:
    assert len(WITH_PROGRAMS) > 8
