"""One Redis server for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.index.server import running_server


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with TemporaryDirectory() as folder, running_server(Path(folder)) as url:
        yield url
