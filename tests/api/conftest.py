"""The API over a file, and what is marked `every_store` over a cluster too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlane.model.catalog import Catalog, Limits
from fairlane.model.service import Fairness, Provider, Region, Service
from tests import stores
from tests.api.server import Gateway, gateway
from tests.world import TIERS, World

SETTINGS = Catalog(
    TIERS,
    [
        Service("work", fairness=Fairness.NONE),
        Service("scarce", limit=1, max_attempts=1),
        Service("first"),
        Service("second", regions={"EU": Region("EU", 2)}, provider="modal"),
    ],
    [Provider("modal", 10)],
    {"both": ("first", "second")},
    Limits(cells=20),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "_stores" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--stores").split(",")
        everywhere = metafunc.definition.get_closest_marker("every_store") is not None
        usable = [
            name for name in wanted if name == "embedded" or (everywhere and name != "postgres")
        ]
        metafunc.parametrize("_stores", usable or [None], indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a store to run on there is nothing to run."""
    if "embedded" in config.getoption("--stores").split(","):
        return
    here = Path(__file__).parent
    items[:] = [
        item
        for item in items
        if here not in item.path.parents or item.get_closest_marker("every_store") is not None
    ]


@pytest.fixture(scope="session")
def _stores(request: pytest.FixtureRequest) -> Iterator[None]:
    with stores.used(request, request.param):
        yield


@pytest.fixture
async def world(tmp_path: Path, _stores: None) -> AsyncIterator[World]:
    async with World(SETTINGS, tmp_path / "ledger.db") as opened:
        yield opened


@pytest.fixture
async def served(world: World) -> AsyncIterator[Gateway]:
    async with gateway(world.engine) as running:
        yield running
