"""The Celery app of the tests, also loaded by the workers that they start. A task says on a Redis
list that it runs, and waits on another one, so that a test decides when it goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import redis
from billiard import current_process  # type: ignore[import-untyped]
from celery import Celery
from celery.exceptions import Reject

import fairlane
from fairlane.celery import balanced

URL = os.environ.get("FAIRLANE_TEST_CELERY_URL", "redis://127.0.0.1:1/0")
OPTIONS: dict[str, Any] = json.loads(os.environ.get("FAIRLANE_TEST_CELERY_OPTIONS", "{}"))
WAIT_SECONDS = 60

BACKEND = os.environ.get("FAIRLANE_TEST_CELERY_BACKEND", URL)
app = Celery("tests", broker=URL, backend=BACKEND)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"socket_connect_timeout": 1, "visibility_timeout": 3600},
    task_publish_retry=False,
    worker_log_color=False,
    worker_hijack_root_logger=False,
    result_extended=True,
    worker_cancel_long_running_tasks_on_connection_loss=True,
)
app.conf.update(OPTIONS.pop("conf", {}))
SMALL = {"queues": 4, "heartbeat_seconds": 0.2, "grace_seconds": 0.2, "settle_seconds": 0}
balancer = balanced(app, **{**SMALL, **OPTIONS})
app.conf.task_routes = (balancer,)


def _redis() -> Any:
    return redis.Redis.from_url(URL, socket_timeout=None)  # tasks wait in blocking reads


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task
def note(user: str) -> None:
    """Notes when it started."""
    with _redis() as client:
        client.rpush("noted", json.dumps([user, time.monotonic()]))


@app.task
def work(user: str, milliseconds: int) -> None:
    """Notes the user and keeps its slot for a while."""
    with _redis() as client:
        client.rpush("noted", json.dumps([user, time.monotonic()]))
        client.blpop("never", timeout=milliseconds / 1000)


@app.task
def hold(name: str) -> str:
    """Runs until the test lets it go."""
    with _redis() as client:
        client.rpush(f"started:{name}", os.getpid())
        client.blpop(f"go:{name}", timeout=WAIT_SECONDS)
    return name


@app.task
def hold_file(name: str) -> None:
    """Runs until the test writes a file: also while the broker is away."""
    pause = threading.Event()
    Path(f"{name}.started").touch()
    while not Path(f"{name}.go").exists():
        pause.wait(0.02)


@app.task(acks_late=True, reject_on_worker_lost=True)
def hold_late(name: str) -> None:
    with _redis() as client:
        client.rpush(f"started:{name}", os.getpid())
        client.blpop(f"go:{name}", timeout=WAIT_SECONDS)


@app.task(retry_on_worker_lost=True, max_retries=1, default_retry_delay=0)
def hold_again(name: str) -> None:
    """Celery 5.7 publishes it again when its child is lost."""
    with _redis() as client:
        client.rpush(f"started:{name}", os.getpid())
        client.blpop(f"go:{name}", timeout=WAIT_SECONDS)


@app.task(soft_time_limit=1)
def too_long_softly(name: str) -> None:
    with _redis() as client:
        client.rpush(f"started:{name}", os.getpid())
        client.blpop(f"go:{name}", timeout=WAIT_SECONDS)


@app.task(time_limit=1)
def too_long(name: str) -> None:
    with _redis() as client:
        client.rpush(f"started:{name}", os.getpid())
        client.blpop(f"go:{name}", timeout=WAIT_SECONDS)


@app.task
def fail() -> None:
    raise ValueError("as asked")


@app.task(bind=True, max_retries=2)
def retry(self: Any, name: str, countdown: float = 0) -> None:
    with _redis() as client:
        client.rpush(f"started:{name}", self.request.retries)
        if self.request.retries < 2:
            raise self.retry(countdown=countdown)


@app.task(bind=True, max_retries=1)
def retry_in(self: Any, name: str, queue: str) -> str:
    """Runs until the test lets it go. Its retry waits in another queue."""
    if self.request.retries == 0:
        with _redis() as client:
            client.blpop(f"go:{name}", timeout=WAIT_SECONDS)
        raise self.retry(countdown=0, queue=queue)
    return name


@app.task(bind=True)
def replace(self: Any, name: str) -> None:
    raise self.replace(hold.s(name))


@app.task(bind=True, acks_late=True)
def reject(self: Any, name: str) -> None:
    """Gives its message back once."""
    with _redis() as client:
        client.rpush(f"started:{name}", os.getpid())
        if client.incr(f"runs:{name}") == 1:
            raise Reject("once more", requeue=True)
        client.blpop(f"go:{name}", timeout=WAIT_SECONDS)


@app.task(acks_late=True)
def reject_for_good(name: str) -> None:
    with _redis() as client:
        client.rpush(f"started:{name}", os.getpid())
    raise Reject("as asked")


@app.task(bind=True, max_retries=3)
def erratic(self: Any, chance: float) -> None:
    """Succeeds, fails, retries or is rejected, as the number says."""
    if chance < 0.1:
        raise ValueError("as asked")
    if chance < 0.25 and self.request.retries < 2:
        raise self.retry(countdown=0)
    if chance < 0.27:
        raise Reject("as asked")


@app.task(bind=True, max_retries=3, acks_late=True, reject_on_worker_lost=True)
def erratic_late(self: Any, chance: float) -> None:
    """As `erratic`; what a killed worker ran is delivered again."""
    if chance < 0.1:
        raise ValueError("as asked")
    if chance < 0.25 and self.request.retries < 2:
        raise self.retry(countdown=0)


@app.task(acks_late=True)
def kill_child() -> None:
    """Kills the pool process that runs it, but never the worker itself."""
    if current_process().daemon:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True)
def report(self: Any, name: str) -> Any:
    """Reports progress and what it was told about its job, and runs until the test lets it go."""
    self.update_state(state="PROGRESS", meta={"percent": 40, "text": "halfway"})
    with _redis() as client:
        client.rpush(f"started:{name}", os.getpid())
        client.blpop(f"go:{name}", timeout=WAIT_SECONDS)
    return {"job": self.request.fairlane["job_id"], "context": self.request.fairlane["context"]}


@app.task
def in_slot(name: str, service: str) -> str:
    """Holds a slot of a limited service while it runs."""
    with fairlane.slot(service, user="ada"), _redis() as client:
        client.rpush(f"started:{name}", os.getpid())
        client.blpop(f"go:{name}", timeout=WAIT_SECONDS)
    return name
