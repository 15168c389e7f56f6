"""What the router costs: a publish through it against a plain one, in turn, in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from celery import Celery

from fairlane.celery import balanced, signals
from fairlane.servers import Redis

ROUNDS = 40
PER_ROUND = 100


def main(_: list[str]) -> int:
    with Redis() as server:
        for backend in (None, server.url):
            plain, routed = _publishes(server.url, backend)
            print(f"{'with' if backend else 'without'} a result backend")
            print(f"  plain apply_async    {plain * 1e6:6.0f} µs")
            print(f"  through the router   {routed * 1e6:6.0f} µs")
            print(f"  the router costs     {100 * (routed / plain - 1):6.1f} %")
    return 0


def _publishes(url: str, backend: str | None) -> list[float]:
    app = Celery("cost", broker=url, backend=backend)
    router = balanced(app, queues=20)
    app.conf.task_routes = (router,)

    @app.task(name="balanced")  # type: ignore[untyped-decorator]
    def task(number: int) -> None:
        """Never runs."""

    taken = _measure(lambda: task.apply_async((1,), queue="plain"), lambda: task.apply_async((1,)))
    signals.disconnect(router)
    router.leases.close()
    app.close()
    return taken


def _measure(*calls: Callable[[], Any]) -> list[float]:
    """The median over rounds of the mean time of each call; the calls take turns."""
    rounds: list[list[float]] = [[] for _ in calls]
    for number in range(ROUNDS + 5):
        for call, times in zip(calls, rounds, strict=True):
            began = time.perf_counter()
            for _ in range(PER_ROUND):
                call()
            if number >= 5:  # after a warm-up
                times.append((time.perf_counter() - began) / PER_ROUND)
    return [statistics.median(times) for times in rounds]
