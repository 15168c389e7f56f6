"""When does a single task start that was sent after 1,000 tasks of another user? Plain Celery with
one queue, a hash of the user, the least loaded queue, and the fair queue, with the same worker."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fairlane.servers import Redis
from tests.celery.site import Site, eventually

BULK = 1_000
TASK_MILLISECONDS = 100
SLOTS = 4
QUEUES = 20


def main(arguments: list[str]) -> int:
    bulk = int(arguments[0]) if arguments else BULK
    print(f"{bulk} tasks of {TASK_MILLISECONDS} ms by one user, then one of another; {SLOTS} slots")
    for way in ("one queue", "hash of the user", "least loaded", "fair"):
        with Redis() as server, tempfile.TemporaryDirectory() as folder:
            waited, place = _measure(way, server, Path(folder), bulk)
        tasks = waited / (TASK_MILLISECONDS / 1000)
        print(
            f"{way:<18} starts after {waited:6.2f} s = {tasks:6.1f} task times, as number {place}"
        )
    return 0


def _measure(way: str, server: Redis, folder: Path, bulk: int) -> tuple[float, int]:
    os.environ["FAIRLANE_TEST_CELERY_URL"] = server.url
    os.environ["FAIRLANE_TEST_CELERY_OPTIONS"] = json.dumps(
        {"queues": QUEUES, "heartbeat_seconds": 10, "grace_seconds": 30}
    )
    sys.modules.pop("tests.celery.app", None)
    site = Site(server, folder, importlib.import_module("tests.celery.app"))
    with site.worker("-P", "threads", "-c", str(SLOTS)):
        for _ in range(bulk):
            _send(way, site, "bulk")
        sent = time.monotonic()
        _send(way, site, "single")
        started = eventually(lambda: _started(site), "the single task", 600)
    site.balancer.leases.close()
    return started[0] - sent, started[1]


def _send(way: str, site: Site, user: str) -> None:
    from fairlane.celery import enqueue_balanced, enqueue_fair, enqueue_for_user

    task, arguments = site.tasks.work, (user, TASK_MILLISECONDS)
    match way:
        case "one queue":
            task.apply_async(arguments, queue="celery")
        case "hash of the user":
            enqueue_for_user(task, user, *arguments)
        case "least loaded":
            enqueue_balanced(task, *arguments)
        case _:
            enqueue_fair(task, user, *arguments)


def _started(site: Site) -> Any:
    for place, each in enumerate(site.client.lrange("noted", 0, -1), 1):
        user, at = json.loads(each)
        if user == "single":
            return at, place
    return None
