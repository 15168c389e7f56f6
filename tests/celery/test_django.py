"""A Django project with Celery, as the documentation of both describes it, with one more line. Runs
where Django is installed: `python3 dev.py celery versions`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from fairlane.servers import Redis
from fairlane.servers.process import ended_with_parent
from tests.celery.site import eventually

pytest.importorskip("django")
pytestmark = pytest.mark.long

SETTINGS = """
SECRET_KEY = "test"
INSTALLED_APPS = ["shop"]
CELERY_BROKER_URL = {url!r}
CELERY_TASK_PUBLISH_RETRY = False
"""

CELERY = """
import os
from celery import Celery
import fairlane.celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
app = Celery("proj")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_routes = (fairlane.celery.balanced(app, queues=3, heartbeat_seconds=0.2),)
app.autodiscover_tasks()
"""

TASKS = """
from celery import shared_task

@shared_task
def render(picture):
    return picture
"""

PUBLISH = """
import django
django.setup()
from shop.tasks import render
for each in range({count}):
    render.delay(each)
"""


def make_project(folder: Path, url: str) -> None:
    for name, text in {
        "proj/__init__.py": "from proj.celery import app as celery_app\n",
        "proj/settings.py": SETTINGS.format(url=url),
        "proj/celery.py": CELERY,
        "shop/__init__.py": "",
        "shop/tasks.py": TASKS,
    }.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "proj.settings"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@contextmanager
def worker(folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", "proj", "worker", "-P", "threads", "-c", "2"]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            ended_with_parent(command), cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print((folder / "worker.log").read_text())


def loads(client: Any) -> list[tuple[int, int]]:
    return [
        (
            int(client.get(f"queue:queue_{n}:pending") or 0),
            int(client.get(f"queue:queue_{n}:running") or 0),
        )
        for n in range(3)
    ]


def test_a_django_project_gets_balanced_queues_with_one_line(tmp_path: Path) -> None:
    with Redis() as server, redis.Redis.from_url(server.url) as client:
        make_project(tmp_path, server.url)
        published = run(tmp_path, "-c", PUBLISH.format(count=6))
        assert published.returncode == 0, published.stderr
        assert loads(client) == [(2, 0)] * 3
        assert [client.llen(f"queue_{n}") for n in range(3)] == [2, 2, 2]
        with worker(tmp_path):
            eventually(lambda: loads(client) == [(0, 0)] * 3, "all tasks ran")
        assert [client.llen(f"queue_{n}") for n in range(3)] == [0, 0, 0]


def test_a_django_project_whose_redis_is_away_gets_the_error_of_the_broker(tmp_path: Path) -> None:
    make_project(tmp_path, "redis://127.0.0.1:1/0")
    published = run(tmp_path, "-c", PUBLISH.format(count=1))
    assert "OperationalError" in published.stderr.splitlines()[-1]


def test_a_django_project_without_redis_publishes(tmp_path: Path) -> None:
    """The leases need Redis. Without it tasks go to random queues."""
    make_project(tmp_path, "memory://")
    published = run(tmp_path, "-c", PUBLISH.format(count=3))
    assert published.returncode == 0, published.stderr
    assert "leases need Redis, and the broker is memory" in published.stderr
