"""Gateways of real processes: embedded, and on a cluster of its own database and Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fairlane.servers import Databases, Redis
from tests.gateway.site import Site


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mode" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--stores").split(",")
        metafunc.parametrize("mode", [each for each in wanted if each != "postgres"])


@pytest.fixture
async def site(mode: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield await opened(mode, tmp_path, request, stack, "gateway")


@pytest.fixture
async def generation_site(
    mode: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield await opened(mode, tmp_path, request, stack, "generation")


async def opened(
    mode: str, folder: Path, request: pytest.FixtureRequest, stack: AsyncExitStack, preset: str
) -> Site:
    stores = {}
    if mode == "cluster":
        server: Databases = request.getfixturevalue("postgres_server")
        redis = stack.enter_context(Redis())
        stores = {
            "DATABASE_URL": await server.new_database(),
            "REDIS_URL": redis.url,
            "FAIRLANE_SERVER__UNSAFE": "true",
        }
    found = Site(folder, stores, stack, preset)
    await found.open()
    return found
