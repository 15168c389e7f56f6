"""The shell blocks of a page are one session: every command succeeds, and prints what is shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fairlane.demo.processes import free_port
from tests.docs.blocks import name_of, pages, run_blocks
from tests.docs.shell import run_and_compare

REGIONS = ("US", "EU", "ASIA")


def sessions() -> list[object]:
    found = [page for page in pages() if run_blocks(page, "bash")]
    return [pytest.param(page, id=name_of(page)) for page in found]


@pytest.mark.long
@pytest.mark.embedded
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl")
@pytest.mark.parametrize("page", sessions())
async def test_every_shell_block_runs_and_prints_what_its_page_says(
    page: Path, tmp_path: Path
) -> None:
    variables = {}
    for region in REGIONS if page.stem == "regions" else ():
        setting = f"FAIRLANE_SERVICES__INFERENCE__REGIONS__{region}__URL"
        variables[setting] = f"http://127.0.0.1:{free_port(0)}"
    await run_and_compare(page, tmp_path, variables)
