"""The loads on the command line, over HTTP and in the metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlane.celery import enqueue_fair
from fairlane.celery.fair import FairQueue
from fairlane.celery.leases import Load
from fairlane.cli import app
from fairlane.config.settings import CeleryLoads
from tests.api.conftest import SETTINGS
from tests.api.server import gateway
from tests.celery.site import Site
from tests.world import World

APP = ("--app", "tests.celery.app")
NOWHERE = "redis://127.0.0.1:1/0"


def test_the_command_line_shows_and_resets_the_loads(site: Site) -> None:
    for _ in range(5):
        site.tasks.add.delay(1, 2)
    site.balancer.choose("lost")
    runner = CliRunner()
    shown = runner.invoke(app, ["celery", "loads", *APP, "--json"])
    assert json.loads(shown.stdout)["queue_1"] == {"pending": 2, "running": 0}
    table = runner.invoke(app, ["celery", "loads", *APP]).stdout.splitlines()
    assert [line.split() for line in table][1] == ["queue_0", "2", "0"]
    assert runner.invoke(app, ["celery", "reset", *APP]).exit_code == 0
    assert site.total() == Load(5, 0)


def test_the_queues_are_shown_before_the_first_publish(site: Site) -> None:
    shown = CliRunner().invoke(app, ["celery", "loads", *APP, "--json"])
    assert json.loads(shown.stdout) == {
        f"queue_{n}": {"pending": 0, "running": 0} for n in range(4)
    }


def test_one_queue_is_reset_and_an_unknown_one_is_refused(site: Site) -> None:
    for _ in range(2):
        site.balancer.choose("lost")
        site.balancer.publishing.take_reserved("queue_0")
        site.balancer.publishing.take_reserved("queue_1")
    reset = ["celery", "reset", *APP, "--queue"]
    assert CliRunner().invoke(app, [*reset, "queue_1"]).exit_code == 0
    assert site.loads() == {"queue_0": Load(1, 0)}
    refused = CliRunner().invoke(app, [*reset, "queue_9"])
    assert refused.exit_code == 2
    assert "known: queue_0, queue_1, queue_2, queue_3, fair" in " ".join(refused.stderr.split())
    assert not site.client.exists("queue:queue_9:pending")
    assert CliRunner().invoke(app, [*reset, "fair"]).exit_code == 0


def test_the_command_line_prints_the_queues_for_a_worker(site: Site) -> None:
    printed = CliRunner().invoke(app, ["celery", "queues", *APP]).stdout
    assert printed == "queue_0,queue_1,queue_2,queue_3,fair\n"


@pytest.mark.parametrize("name", ["no.such.module", "tests.celery.site"])
def test_the_command_line_says_what_is_wrong_with_the_app(site: Site, name: str) -> None:
    refused = CliRunner().invoke(app, ["celery", "loads", "--app", name])
    assert refused.exit_code == 2
    assert name in refused.stderr


@pytest.mark.parametrize("site", [{"redis": NOWHERE}], indirect=True)
def test_the_command_line_says_that_redis_is_away(site: Site) -> None:
    assert CliRunner().invoke(app, ["celery", "loads", *APP]).exit_code == 69


async def test_the_loads_are_read_over_http_and_by_prometheus(site: Site, tmp_path: Path) -> None:
    site.tasks.add.delay(1, 2)
    FairQueue(site.balancer).join("w@test", 1)
    for _ in range(3):
        enqueue_fair(site.tasks.add, "anna", 1, 2)
    where = CeleryLoads(site.server.url)
    async with (
        World(SETTINGS, tmp_path / "ledger.db") as world,
        gateway(world.engine, celery=where) as served,
        served.client() as client,
    ):
        queues = (await client.get("/api/v1/celery/queues")).json()["queues"]
        metrics = (await client.get("/metrics")).text
    assert queues[0] == {"name": "queue_0", "pending": 1, "running": 0}
    assert queues[-1] == {"name": "fair", "pending": 3, "running": 0}
    assert 'fairlane_celery_queue_tasks{queue="fair",state="pending"} 3' in metrics


@pytest.mark.parametrize(("where", "status"), [(None, 404), (NOWHERE, 503)])
async def test_without_celery_queues_the_route_says_so(
    where: str | None, status: int, tmp_path: Path
) -> None:
    async with (
        World(SETTINGS, tmp_path / "ledger.db") as world,
        gateway(world.engine, celery=CeleryLoads(where)) as served,
        served.client() as client,
    ):
        assert (await client.get("/api/v1/celery/queues")).status_code == status
        assert (await client.get("/metrics")).status_code == 200
