"""Every promise is tested on all stores, except what is marked `embedded`: what only a file has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import stores


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = metafunc.config.getoption("--stores").split(",")
    if metafunc.definition.get_closest_marker("embedded"):
        wanted = [each for each in wanted if each == "embedded"]
    metafunc.parametrize("_stores", wanted, indirect=True, scope="session")


@pytest.fixture(scope="session", autouse=True)
def _stores(request: pytest.FixtureRequest) -> Iterator[None]:
    with stores.used(request, request.param):
        yield
