"""`fairlane demo`: an embedded queue at work, live in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlane.clock import SECOND
from fairlane.compose import embedded
from fairlane.engine import Engine
from fairlane.engine.views import Overview
from fairlane.errors import StaleLease
from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.worker import Worker
from fairlane.presets import gateway

SERVICE_SECONDS = {
    "prompt_enhancer": 90,
    "fast_chat_llm": 150,
    "image_gen": 330,
    "model_3d_gen": 390,
}
PEOPLE = {
    "ada": "high",
    "grace": "high",
    "alan": "medium",
    "edsger": "medium",
    "barbara": "medium",
    "linus": "low",
    "bulk": "low",
}


@dataclass
class Scene:
    """What the demo has seen so far."""

    waits: dict[str, deque[float]] = field(
        default_factory=lambda: {tier: deque(maxlen=500) for tier in ("high", "medium", "low")}
    )
    done: dict[str, int] = field(default_factory=dict)
    submitted: dict[str, int] = field(default_factory=dict)
    running: dict[str, Lease] = field(default_factory=dict)
    retries: int = 0


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
        scene = Scene()
        tasks = [
            asyncio.create_task(_traffic(engine, scene, speed)),
            *(asyncio.create_task(_worker(engine, scene, i, speed)) for i in range(11)),
        ]
        try:
            await _show(engine, scene, console, stop, seconds, speed)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        counts = await engine.check()
    done = sum(scene.done.values())
    sound = "sound" if not any(counts) else f"NOT sound: {counts}"
    console.print(f"\n{done} jobs completed, {scene.retries} retries, the ledger is {sound}")


async def _traffic(engine: Engine, scene: Scene, speed: float) -> None:
    """Everybody wants something now and then; one user sends a great many at once."""
    chance = random.Random(7)
    for user, tier in PEOPLE.items():
        await engine.set_tier(user, tier)
    while True:
        user = chance.choice(list(PEOPLE))
        feature = chance.choices(("text_only", "full_pipeline"), (3, 1))[0]
        number = 15 if user == "bulk" and chance.random() < 0.3 else 1
        jobs = [NewJob(feature, {"prompt": f"a robot for {user}"}, user=user)] * number
        await engine.submit_many(jobs)
        scene.submitted[user] = scene.submitted.get(user, 0) + number
        await asyncio.sleep(chance.expovariate(1 / (60 / speed)))


async def _worker(engine: Engine, scene: Scene, number: int, speed: float) -> None:
    chance = random.Random(number)
    worker = await engine.register(Worker(f"worker-{number}"))
    while True:
        for lease in await engine.claim(worker, 1, wait=5):
            if lease.step == 0 and lease.attempt == 1:
                scene.waits[lease.tier].append(lease.waited / SECOND)
            scene.running[lease.token] = lease
            seconds = SERVICE_SECONDS[lease.service] * chance.uniform(0.7, 1.3) / speed
            await asyncio.sleep(seconds)
            with contextlib.suppress(StaleLease):
                await _finish(engine, scene, lease, chance)
            scene.running.pop(lease.token, None)


async def _finish(engine: Engine, scene: Scene, lease: Lease, chance: random.Random) -> None:
    if chance.random() < 0.03:
        scene.retries += 1
        await engine.fail(lease, Fault.TRANSIENT, "the demo drops a call now and then")
        return
    await engine.complete(lease, {"made_by": lease.service})
    if lease.last_step:
        user = lease.user.rpartition(":")[2]
        scene.done[user] = scene.done.get(user, 0) + 1


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
    return Group(_services(overview), _tiers(overview, scene), _people(scene), _note(speed))


def _services(overview: Overview) -> Table:
    table = Table(title="services: slots taken, jobs waiting", expand=True)
    for name in ("service", "slots", "high", "medium", "low", "retrying"):
        table.add_column(name, justify="left" if name in ("service", "slots") else "right")
    waiting: dict[tuple[str, int], int] = {}
    delayed: dict[str, int] = {}
    for depth in overview.stats.depths:
        waiting[depth.service, depth.rank] = depth.waiting
        delayed[depth.service] = delayed.get(depth.service, 0) + depth.delayed
    for pool in overview.stats.pools:
        name = pool.pool.partition(":")[2]
        bar = "■" * pool.held + "□" * (pool.limit - pool.held)
        counts = [str(waiting.get((name, rank), 0)) for rank in range(3)]
        table.add_row(name, f"{bar} {pool.held}/{pool.limit}", *counts, str(delayed.get(name, 0)))
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
    running: dict[str, int] = {}
    for lease in scene.running.values():
        user = lease.user.rpartition(":")[2]
        running[user] = running.get(user, 0) + 1
    for user, tier in PEOPLE.items():
        counts = (scene.submitted.get(user, 0), running.get(user, 0), scene.done.get(user, 0))
        table.add_row(user, tier, *map(str, counts))
    return table


def _note(speed: float) -> Text:
    return Text(
        "No service ever has more calls than slots; bulk's flood does not hold up linus; "
        f"a second here is {speed:g} s in life.",
        style="dim",
    )
