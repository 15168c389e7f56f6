"""Runs the shell blocks of a page: a shell runs them in their order, with a real server where the
page starts one, and the output is compared with what the page shows."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.demo.processes import free_port
from tests.docs.blocks import Block, blocks, name_of
from tests.gateway.site import FOREIGN

PORT_OF_PAGES = "8000"
IN_ITS_OWN_TERMINAL = "# in a terminal of its own"
END_OF_BLOCK = "--- end of block ---"
READY = "curl -s -o ready --retry 100 --retry-connrefused --retry-max-time 60 $FAIRLANE_URL/readyz"
PREPARE = """
set -euo pipefail
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
"""
VARIES = re.compile(r"^<!-- differs in each run: (?P<names>[\w, ]+) -->$", re.MULTILINE)
"""A page names the fields of its responses whose values differ from run to run."""


class Shown(NamedTuple):
    """A block of commands, and the output that the page shows after it."""

    commands: Block
    output: Block | None


def shown(page: Path) -> list[Shown]:
    every = blocks(page)
    found = []
    for block, following in zip(every, [*every[1:], Block("", "", 0)], strict=True):
        if block.language == "bash" and not block.not_run:
            compared = following.follows and following.language in {"json", "text"}
            found.append(Shown(block, following if compared else None))
    return found


def script(session: list[Shown]) -> str:
    """All commands as one program. What needs a terminal of its own runs in the background."""
    lines = [PREPARE]
    for each in session:
        for line in each.commands.text.splitlines():
            if line.endswith(IN_ITS_OWN_TERMINAL):
                command = line.removesuffix(IN_ITS_OWN_TERMINAL).strip()
                lines += [f"{command} >> log 2>&1 &", READY]
            else:
                lines.append(line.replace(".venv/bin/", ""))
        lines.append(f"printf '\\n{END_OF_BLOCK}\\n'")
    return "\n".join(lines)


async def run_and_compare(page: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """Fails if a command fails, or if an output differs from the page in something that is shown
    there and does not differ in each run."""
    session, port = shown(page), str(free_port(0))
    of_each_run = fields_that_differ(page)
    save_files(page, folder, port)
    add_programs(folder / "bin")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    here = {
        "FAIRLANE_SERVER__PORT": port,
        "FAIRLANE_URL": f"http://127.0.0.1:{port}",
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "COLUMNS": "120",
        "no_proxy": "*",
        **variables,
    }
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", script(session).replace(PORT_OF_PAGES, port),
        cwd=folder, env={**kept, **here}, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    printed, complaints = (each.decode() for each in await process.communicate())
    log = folder / "log"
    told = f"{name_of(page)}:\n{printed}{complaints}" + (log.read_text() if log.exists() else "")
    assert process.returncode == 0, told
    outputs = printed.split(END_OF_BLOCK)[:-1]
    assert len(outputs) == len(session)
    for (commands, wanted), output in zip(session, outputs, strict=True):
        if wanted is not None:
            where = f"{name_of(page)}:{commands.line}:\n{output}"
            real = output.replace(port, PORT_OF_PAGES)
            assert same(real, wanted, of_each_run), where


def fields_that_differ(page: Path) -> set[str]:
    found = VARIES.search(page.read_text("utf-8"))
    return set(found["names"].split(", ")) if found else set()


def save_files(page: Path, folder: Path, port: str = PORT_OF_PAGES) -> None:
    """The page asks its reader to save these."""
    for block in blocks(page):
        if block.file_name:
            (folder / block.file_name).write_text(block.text.replace(PORT_OF_PAGES, port))


def add_programs(folder: Path) -> None:
    folder.mkdir()
    for name, program in {
        "fairlane": f"{sys.executable} -m fairlane",
        "python3": sys.executable,
    }.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (folder / name).chmod(0o755)


def same(output: str, wanted: Block, of_each_run: Set[str]) -> bool:
    if wanted.language == "text":
        return output.split() == wanted.text.split()
    page = json.loads(wanted.text)
    real = as_far_as_shown(json.loads(output), page, of_each_run)
    return bool(real == as_far_as_shown(page, page, of_each_run))


def as_far_as_shown(real: Any, page: Any, of_each_run: Set[str]) -> Any:
    """The response without the fields that the page leaves out, and without values of one run."""
    if isinstance(real, dict) and isinstance(page, dict):
        return {
            name: "…" if name in of_each_run else as_far_as_shown(real[name], value, of_each_run)
            for name, value in page.items()
            if name in real
        }
    if isinstance(real, list) and isinstance(page, list) and len(real) == len(page):
        return [as_far_as_shown(*each, of_each_run) for each in zip(real, page, strict=True)]
    return real
