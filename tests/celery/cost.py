"""What the router costs: publishes through it against plain ones, in one run. Each round measures
every way once, and begins with another one. The ratio is that of two ways in the same round: its
median over the rounds, and between which values half of the rounds are. Once in wall-clock time and
once in CPU time of the publisher, which depends less on other load of the machine."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from celery import Celery

from fairlane.celery import balanced, signals
from fairlane.celery.router import Balancer
from fairlane.servers import Redis

ROUNDS = 18
PER_ROUND = 1000


class Taken(NamedTuple):
    """Microseconds per publish."""

    wall: float
    cpu: float


def main(_: list[str]) -> int:
    with Redis() as server:
        for backend in (None, server.url):
            print(
                f"{'with' if backend else 'without'} a result backend, {PER_ROUND} publishes each"
            )
            rounds = _rounds(server.url, backend)
            for name, taken in rounds.items():
                _show(name, taken, rounds["plain"])
    return 0


def _show(name: str, rounds: list[Taken], plain: list[Taken]) -> None:
    columns = [f"  {name:<24}"]
    for n, kind in enumerate(("time", "CPU")):
        taken = statistics.median(each[n] for each in rounds)
        columns.append(f"{kind} {taken:5.0f} µs")
        if rounds is not plain:
            more = [each[n] / base[n] - 1 for each, base in zip(rounds, plain, strict=True)]
            low, middle, high = statistics.quantiles(more, n=4)
            columns.append(f"{middle:+6.1%} ({low:+.1%} to {high:+.1%})")
    print("  ".join(columns), flush=True)


def _rounds(url: str, backend: str | None) -> dict[str, list[Taken]]:
    plain, bulk = Celery("plain", broker=url, backend=backend), _routed(url, backend)
    alone = _routed(url, backend, reserve_ahead=1)
    publishes: dict[str, tuple[Callable[[], Any], Balancer | None]] = {
        "plain": (_task(plain), None),
        "router": (_task(bulk.app), bulk),
        "router, no places ahead": (_task(alone.app), alone),
    }
    rounds: dict[str, list[Taken]] = {name: [] for name in publishes}
    order = deque(publishes)
    for number in range(ROUNDS + 1):
        for name in order:
            taken = _measure(*publishes[name])
            if number:  # after a warm-up
                rounds[name].append(taken)
        order.rotate()
    for app in (plain, bulk.app, alone.app):
        app.close()
    for balancer in (bulk, alone):
        balancer.close()
    return rounds


def _routed(url: str, backend: str | None, **options: Any) -> Balancer:
    app = Celery("routed", broker=url, backend=backend)
    balancer = balanced(app, queues=20, **options)
    app.conf.task_routes = (balancer,)
    signals.disconnect(balancer)
    return balancer


def _task(app: Any) -> Callable[[], Any]:
    @app.task(name="task")  # type: ignore[untyped-decorator]
    def task(number: int) -> None:
        """Never runs."""

    return lambda: task.apply_async((1,))


def _measure(publish: Callable[[], Any], balancer: Balancer | None) -> Taken:
    """Signals reach every app of a process: they are connected only for the app that has them."""
    if balancer is not None:
        signals.connect(balancer)
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(PER_ROUND):
        publish()
    taken = Taken(time.perf_counter() - wall, time.thread_time() - cpu)
    if balancer is not None:
        signals.disconnect(balancer)
    return Taken(*(each / PER_ROUND * 1e6 for each in taken))
