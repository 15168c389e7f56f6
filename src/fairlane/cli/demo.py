"""`fairlane demo`: the gateway at work, live in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlane.compose import embedded
from fairlane.demo.gateway import PEOPLE, Scene, playing
from fairlane.engine import Engine
from fairlane.engine.views import Overview
from fairlane.presets import gateway


def run(seconds: float, data: Path | None, speed: float) -> None:
    with contextlib.ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-")))
        asyncio.run(_run(seconds, folder / "demo.db", speed))


async def _run(seconds: float, path: Path, speed: float) -> None:
    console = Console()
    stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    async with await embedded(gateway(), path) as engine:
        console.print(
            f"Fairlane, embedded · ledger {path} · {speed:g} × faster than life · Ctrl-C ends"
        )
        async with playing(engine, speed) as scene:
            _say_where(console, scene)
            await _show(engine, scene, console, stop, seconds, speed)
        counts = await engine.check()
    done = sum(scene.done.values())
    sound = "sound" if not any(counts) else f"NOT sound: {counts}"
    console.print(
        f"\n{done} jobs completed, {scene.hiccups} hiccups got over, "
        f"{scene.broken} calls above a limit, the ledger is {sound}"
    )


CALL = (
    """'{"meta": {"job_id": "mine", "step_index": 0, "attempt": 1}, """
    """"payload": {"params": {}, "context": {}}}'"""
)


def _say_where(console: Console, scene: Scene) -> None:
    """The services are real servers; a call that goes around the dispatcher breaks a limit."""
    for service in scene.services:
        limit = f"at most {service.limit} at once, else 503"
        console.print(f"  {service.name:<16}{service.url}  {limit}")
    url = f"{scene.services[2].url}/v1/execute"
    console.print(f"See a limit broken: curl -d {CALL} {url}", soft_wrap=True)


async def _show(
    engine: Engine,
    scene: Scene,
    console: Console,
    stop: asyncio.Event,
    seconds: float,
    speed: float,
) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds if seconds else float("inf")
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while not stop.is_set() and loop.time() < ends:
            overview = await engine.overview()
            live.update(_picture(overview, scene, speed), refresh=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(0.5, max(0.01, ends - loop.time()))):
                    await stop.wait()


def _picture(overview: Overview, scene: Scene, speed: float) -> Group:
    return Group(
        _services(overview, scene), _tiers(overview, scene), _people(scene), _note(scene, speed)
    )


def _services(overview: Overview, scene: Scene) -> Table:
    table = Table(title="services: slots taken, what the service counts, jobs waiting", expand=True)
    left = ("service", "slots", "health")
    for name in (*left, "most at once", "above limit", "high", "medium", "low", "retrying"):
        table.add_column(name, justify="left" if name in left else "right")
    waiting: dict[tuple[str, int], int] = {}
    delayed: dict[str, int] = {}
    for depth in overview.stats.depths:
        waiting[depth.service, depth.rank] = depth.waiting
        delayed[depth.service] = delayed.get(depth.service, 0) + depth.delayed
    taken = {pool.pool.partition(":")[2]: pool for pool in overview.stats.pools}
    for service in scene.services:
        name, pool = service.name, taken[service.name]
        bar = "■" * pool.held + "□" * (pool.limit - pool.held)
        gate = overview.stats.gates.get(name)
        health = "closed, probing" if gate is not None and gate.closed else "open"
        table.add_row(
            name,
            f"{bar} {pool.held}/{pool.limit}",
            health,
            f"{service.most}/{service.limit}",
            str(service.refused),
            *(str(waiting.get((name, rank), 0)) for rank in range(3)),
            str(delayed.get(name, 0)),
        )
    return table


def _tiers(overview: Overview, scene: Scene) -> Table:
    table = Table(title="tiers: seconds until the first step began", expand=True)
    for name in ("tier", "started", "p50", "p95"):
        table.add_column(name, justify="left" if name == "tier" else "right")
    for tier, waits in scene.waits.items():
        ranked = sorted(waits)
        p50, p95 = (f"{ranked[int(len(ranked) * q)]:.2f}" if ranked else "–" for q in (0.5, 0.95))
        table.add_row(tier, str(len(waits)), p50, p95)
    table.caption = f"{overview.queued} queued · {overview.running} running"
    return table


def _people(scene: Scene) -> Table:
    table = Table(title="users", expand=True)
    for name in ("user", "tier", "submitted", "running", "done"):
        table.add_column(name, justify="left" if name in ("user", "tier") else "right")
    for user, tier in PEOPLE.items():
        counts = (scene.submitted[user], scene.running[user], scene.done[user])
        table.add_row(user, tier, *map(str, counts))
    return table


def _note(scene: Scene, speed: float) -> Text:
    down = f" {scene.down} is away now: see it closed, probed and opened." if scene.down else ""
    return Text(
        "Look at: no service ever has more calls than slots; the high tier waits least; bulk's "
        f"flood does not hold up linus; a second here is {speed:g} s in life.{down}",
        style="dim",
    )
