"""What is dispatched is tested on the same stores as the engine; PostgreSQL comes with Redis."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import _stores as _stores  # noqa: PLC0414 - used by its name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "_stores" not in metafunc.fixturenames:
        return
    wanted = metafunc.config.getoption("--stores").split(",")
    chosen = [each for each in wanted if each != "postgres"]
    if metafunc.definition.get_closest_marker("embedded"):
        chosen = [each for each in wanted if each == "embedded"]
    metafunc.parametrize("_stores", chosen, indirect=True, scope="session")
