"""Every check of the doctor is tested on a file and on a cluster, by making its fault."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests import stores
from tests.doctor.patient import Patient
from tests.world import World


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "_stores" not in metafunc.fixturenames:
        return
    wanted = metafunc.config.getoption("--stores").split(",")
    wanted = [each for each in wanted if each in ("embedded", "cluster")]
    if metafunc.definition.get_closest_marker("embedded"):
        wanted = [each for each in wanted if each == "embedded"]
    metafunc.parametrize("_stores", wanted, indirect=True, scope="session")


@pytest.fixture(scope="session")
def _stores(request: pytest.FixtureRequest) -> Iterator[None]:
    with stores.used(request, request.param):
        yield


@pytest.fixture
async def patient(tmp_path: Path, _stores: None) -> AsyncIterator[Patient]:
    async with World(Patient.SETTINGS, tmp_path / "ledger.db") as world:
        yield Patient(world)
