"""Servers that tests share: each started by the first test that asks, once per run.

A test that kills, pauses or measures a server starts one of its own (`tests.servers`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers import Databases, Postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Databases]:
    """PostgreSQL without fsync, or the one at FAIRLANE_TEST_POSTGRES_URL."""
    if url := os.environ.get("FAIRLANE_TEST_POSTGRES_URL"):
        yield Databases(url)
        return
    with Postgres(fsync=False) as server:
        yield server
