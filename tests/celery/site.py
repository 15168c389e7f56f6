"""A broker, an app on it, and real Celery workers that a test starts, kills and stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import redis

from fairlane.celery.leases import Load
from fairlane.celery.router import Balancer
from fairlane.errors import StoreAway
from fairlane.servers import Redis
from fairlane.servers.process import ended_with_parent

POLL_SECONDS = 0.02
WITHIN_SECONDS = 40
SETTLE_SECONDS = 3


def eventually(condition: Callable[[], Any], what: str = "", within: float = WITHIN_SECONDS) -> Any:
    """The first true value of the condition."""
    pause, deadline = threading.Event(), time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within} s: {what or condition}"
        pause.wait(POLL_SECONDS)
    return found


class Worker:
    """A `celery worker` process. It ends with the test run, however that ends."""

    def __init__(self, site: Site, name: str, arguments: tuple[str, ...]) -> None:
        self.name = f"{name}@test"
        self.log = site.folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ended_with_parent(
                    [
                        *(sys.executable, "-m", "celery", "-A", "tests.celery.app", "worker"),
                        *("-n", self.name, "-l", "INFO", "--without-gossip", "--without-mingle"),
                        *arguments,
                    ]
                ),
                env=site.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL to the worker and its children at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """A warm shutdown."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WITHIN_SECONDS)


class Site:
    def __init__(self, server: Redis, folder: Path, module: ModuleType) -> None:
        self.server, self.folder = server, folder
        self.client: Any = redis.Redis.from_url(server.url, protocol=2, socket_timeout=None)
        self.tasks: Any = module
        self.balancer: Balancer = module.balancer
        self.environment = dict(os.environ)
        self._workers: list[Worker] = []

    @contextmanager
    def worker(self, *arguments: str, name: str = "w1") -> Iterator[Worker]:
        """A worker that is ready, and killed at the end. It settles after more than the two seconds
        in which a worker with threads acknowledges."""
        options = json.loads(self.environment["FAIRLANE_TEST_CELERY_OPTIONS"])
        settled = json.dumps({"settle_seconds": SETTLE_SECONDS, **options})
        self.environment["FAIRLANE_TEST_CELERY_OPTIONS"] = settled
        worker = Worker(self, name, arguments)
        try:
            eventually(lambda: self._ready(worker), f"{worker.name} is ready")
            yield worker
        finally:
            worker.kill()
            print(worker.log.read_text())  # shown if the test fails

    def _ready(self, worker: Worker) -> bool:
        assert worker.process.poll() is None, worker.log.read_text()
        return " ready." in worker.log.read_text() and worker.name in self.balancer.leases.workers()

    def is_up(self) -> bool:
        """Whether broker and lease store answer, and this process has noticed."""
        try:
            return bool(self.client.ping()) and self.total() is not None
        except (redis.exceptions.RedisError, StoreAway):
            return False

    def started(self, name: str) -> int:
        """Waits until a task of this name runs. Returns what it said: mostly its process id."""
        found = self.client.blpop([f"started:{name}"], timeout=WITHIN_SECONDS)
        assert found is not None, f"{name} did not start"
        return int(found[1])

    def let_go(self, name: str) -> None:
        self.client.rpush(f"go:{name}", 1)

    def loads(self) -> dict[str, Load]:
        """The loads that are not zero."""
        leases = self.balancer.leases
        fair = [f"fair.{worker}" for worker in leases.workers()]
        found = leases.loads([*self.balancer.options.queues, *fair])
        return {queue: load for queue, load in found.items() if load != (0, 0)}

    def total(self) -> Load:
        loads = self.loads().values()
        return Load(sum(each.pending for each in loads), sum(each.running for each in loads))

    def becomes(self, pending: int, running: int) -> None:
        wanted = Load(pending, running)
        eventually(lambda: self.total() == wanted, f"{wanted}, and it is {self.total()}")

    def stays(self, pending: int, running: int, looks: int = 4) -> None:
        """The loads are these, and still are after some looks of the reconciler."""
        self.becomes(pending, running)
        for _ in range(looks):
            self.look()
        assert self.total() == Load(pending, running)

    def look(self) -> None:
        """Waits until a worker has looked at the broker once more."""
        key = self.balancer.leases.key("look")
        self.client.delete(key)
        eventually(lambda: self.client.exists(key), "a look of the reconciler")
