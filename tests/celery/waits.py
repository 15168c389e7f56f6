"""When does a single task start that was sent after 1,000 tasks of another user? Plain Celery with
one queue, a hash of the user, the least loaded queue, the fair queue, and the bridge, with the same
worker."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import tempfile
import time
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from fairlane.servers import Redis
from tests.celery.bridge import bridged
from tests.celery.site import POLL_SECONDS, Site, eventually

BULK = 1_000
TASK_MILLISECONDS = 100
SLOTS = 4
QUEUES = 20


WAYS = ("one queue", "hash of the user", "least loaded", "fair", "bridge")


def main(arguments: list[str]) -> int:
    """The size of the bulk, and which ways to measure, if not all."""
    bulk = int(arguments[0]) if arguments else BULK
    print(f"{bulk} tasks of {TASK_MILLISECONDS} ms by one user, then one of another; {SLOTS} slots")
    for way in arguments[1:] or WAYS:
        with Redis() as server, tempfile.TemporaryDirectory() as folder:
            measure = _measure_bridge if way == "bridge" else partial(_measure, way)
            with redirect_stdout(StringIO()):  # the log of the worker
                waited, before = measure(server, Path(folder), bulk)
        tasks = waited / (TASK_MILLISECONDS / 1000)
        print(
            f"{way:<18} starts after {waited:6.2f} s = {tasks:6.1f} task times, "
            f"and after {before} tasks that started meanwhile",
            flush=True,
        )
    return 0


def _site(server: Redis, folder: Path, **conf: Any) -> Site:
    os.environ["FAIRLANE_TEST_CELERY_URL"] = server.url
    os.environ["FAIRLANE_TEST_CELERY_OPTIONS"] = json.dumps(
        {"queues": QUEUES, "heartbeat_seconds": 10, "grace_seconds": 30, "conf": conf}
    )
    sys.modules.pop("tests.celery.app", None)
    return Site(server, folder, importlib.import_module("tests.celery.app"))


def _measure_bridge(server: Redis, folder: Path, bulk: int) -> tuple[float, int]:
    site = _site(server, folder, task_track_started=True)
    with site.worker("-P", "threads", "-c", str(SLOTS)):
        found = asyncio.run(_through_bridge(site, bulk))
    site.balancer.leases.close()
    return found


async def _through_bridge(site: Site, bulk: int) -> tuple[float, int]:
    """As many jobs at once as the worker has slots. The single one is sent when all others wait."""
    async with bridged(site, "work", limit=SLOTS) as bridge:
        for _ in range(bulk):
            await bridge.submit(["bulk", TASK_MILLISECONDS], user="bulk")
        sent = time.monotonic()
        await bridge.submit(["single", TASK_MILLISECONDS], user="single")
        while (started := await asyncio.to_thread(_started, site)) is None:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
    return started - sent, _started_since(site, sent)


def _measure(way: str, server: Redis, folder: Path, bulk: int) -> tuple[float, int]:
    site = _site(server, folder)
    with site.worker("-P", "threads", "-c", str(SLOTS)):
        for _ in range(bulk):
            _send(way, site, "bulk")
        sent = time.monotonic()
        _send(way, site, "single")
        started = eventually(lambda: _started(site), "the single task", 600)
        found = started - sent, _started_since(site, sent)
    site.balancer.leases.close()
    return found


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
    """When the single task started, or None."""
    return next((at for user, at in _notes(site) if user == "single"), None)


def _started_since(site: Site, sent: float) -> int:
    """How many tasks of the bulk started after the single one was sent, and before it."""
    single = _started(site)
    return sum(sent < at < single for user, at in _notes(site) if user == "bulk")


def _notes(site: Site) -> list[tuple[str, float]]:
    return [tuple(json.loads(each)) for each in site.client.lrange("noted", 0, -1)]
