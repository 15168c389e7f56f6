"""One Redis for these tests, emptied before each of them, and the app on it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane.celery import signals
from fairlane.celery.router import balancer_of
from fairlane.servers import Redis
from tests.celery.site import Site


@pytest.fixture(scope="session")
def broker() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def durable_broker() -> Iterator[Redis]:
    with Redis(appendonly=True) as server:
        yield server


@pytest.fixture
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Site]:
    """The app with the options of the test's parameter, if it has one. With `durable` the broker
    survives a restart."""
    options: dict[str, Any] = dict(getattr(request, "param", {}))
    name = "durable_broker" if options.pop("durable", False) else "broker"
    broker: Redis = request.getfixturevalue(name)
    monkeypatch.setenv("FAIRLANE_TEST_CELERY_URL", broker.url)
    monkeypatch.setenv("FAIRLANE_TEST_CELERY_OPTIONS", json.dumps(options))
    sys.modules.pop("tests.celery.app", None)
    module = importlib.import_module("tests.celery.app")
    site = Site(broker, tmp_path, module)
    site.client.flushall()
    yield site
    site.client.close()
    module.app.close()
    balancer = balancer_of(module.app)
    signals.disconnect(balancer)
    for each in (balancer, module.balancer):
        each.close()
