from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.browser.chromium import Tab, installed, tab


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Tab]:
    program = installed()
    if program is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    async with tab(program, tmp_path / "browser") as opened:
        yield opened
