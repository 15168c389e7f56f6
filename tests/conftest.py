"""Servers that tests share, each started once per run, when the first test asks for it.

A test that kills, pauses, floods or measures a server starts its own (`fairlane.servers`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from fairlane.servers import Databases, Postgres, Redis, RedisKeyspace


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stores",
        default="embedded,postgres,cluster",
        help="Stores the conformance suite runs on: embedded, postgres, cluster (default: these "
        "three), general (PostgreSQL without its shortcuts).",
    )


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Databases]:
    """PostgreSQL without fsync; the one at FAIRLANE_TEST_POSTGRES_URL, if that is set."""
    if url := os.environ.get("FAIRLANE_TEST_POSTGRES_URL"):
        given = Databases(url)
        yield given
        asyncio.run(given.drop_databases())
        return
    with Postgres(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisKeyspace]:
    """Redis without persistence; the one at FAIRLANE_TEST_REDIS_URL, if that is set."""
    if url := os.environ.get("FAIRLANE_TEST_REDIS_URL"):
        yield RedisKeyspace(url)
        return
    with Redis() as server:
        yield server
