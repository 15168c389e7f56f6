"""The commands of docs/guides/generation.md: a shell runs them against a real server, and the
responses are those of the page."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairlane.demo.processes import free_port
from tests.gateway.site import FOREIGN
from tests.repo.checkout import ROOT
from tests.repo.readme import Block, blocks

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl"),
]

GUIDE = ROOT / "docs" / "guides" / "generation.md"
PORT_IN_GUIDE = "8000"
IN_ITS_OWN_TERMINAL = "# in a terminal of its own"
PROGRAM = "# gpu.py\n"
END_OF_BLOCK = "--- end of block ---"
READY = "curl -s -o ready --retry 100 --retry-connrefused --retry-max-time 60 $FAIRLANE_URL/readyz"
PREPARE = """
set -euo pipefail
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
"""
OF_EACH_RUN = {
    "id",
    "job_id",
    "url",
    "at",
    "load_seconds",
    "service_seconds",
    "estimated_wait",
}
"""Values that differ from run to run."""


class Shown(NamedTuple):
    """A block of commands, and the response that the page shows after it."""

    commands: Block
    response: Any


def shown() -> list[Shown]:
    page = blocks(GUIDE)
    found = []
    for block, following in zip(page, [*page[1:], Block("", "", 0)], strict=True):
        if block.language == "bash":
            answer = json.loads(following.text) if following.language == "json" else None
            found.append(Shown(block, answer))
    return found


def script(pages: list[Shown]) -> str:
    """All commands as one program. What needs a terminal of its own runs in the background."""
    lines = [PREPARE]
    for each in pages:
        for line in each.commands.text.splitlines():
            if line.endswith(IN_ITS_OWN_TERMINAL):
                command = line.removesuffix(IN_ITS_OWN_TERMINAL).strip()
                lines += [f"{command} >> log 2>&1 &", READY]
            else:
                lines.append(line)
        lines.append(f"printf '\\n{END_OF_BLOCK}\\n'")
    return "\n".join(lines)


async def test_the_commands_of_the_guide_get_the_responses_that_it_shows(tmp_path: Path) -> None:
    pages, port = shown(), str(free_port(0))
    for block in blocks(GUIDE):
        if block.text.startswith(PROGRAM):
            (tmp_path / "gpu.py").write_text(block.text)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, program in {
        "fairlane": f"{sys.executable} -m fairlane",
        "python3": sys.executable,
    }.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    here = {
        "FAIRLANE_SERVER__PORT": port,
        "FAIRLANE_URL": f"http://127.0.0.1:{port}",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "no_proxy": "*",
    }
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", script(pages).replace(PORT_IN_GUIDE, port),
        cwd=tmp_path, env={**kept, **here}, stdout=PIPE, stderr=STDOUT,
    )  # fmt: skip
    printed = (await process.communicate())[0].decode()
    log = tmp_path / "log"
    assert process.returncode == 0, printed + (log.read_text() if log.exists() else "")
    answers = printed.split(END_OF_BLOCK)[:-1]
    assert len(answers) == len(pages)
    for page, answer in zip(pages, answers, strict=True):
        if page.response is not None:
            real = json.loads(answer)
            assert as_far_as_shown(real, page.response) == without_chance(page.response), (
                f"line {page.commands.line}: {real}"
            )
    assert "payment" in (tmp_path / "statement.csv").read_text()


def as_far_as_shown(real: Any, page: Any) -> Any:
    """The response without the fields that the page leaves out, and without values of one run."""
    if isinstance(real, dict) and isinstance(page, dict):
        return {
            name: "…" if name in OF_EACH_RUN else as_far_as_shown(real[name], page[name])
            for name in page
            if name in real
        }
    if isinstance(real, list) and isinstance(page, list) and len(real) == len(page):
        return [as_far_as_shown(*each) for each in zip(real, page, strict=True)]
    return real


def without_chance(page: Any) -> Any:
    return as_far_as_shown(page, page)
