"""Every promise is tested on all stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import stores


@pytest.fixture(scope="session", autouse=True, params=["embedded", "postgres"])
def _stores(request: pytest.FixtureRequest) -> Iterator[None]:
    before = stores.present
    if request.param == "postgres":
        stores.present = stores.PostgresAndMemory(request.getfixturevalue("postgres_server"))
    yield
    stores.present = before
