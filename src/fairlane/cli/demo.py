"""`fairlane demo`: a complete gateway with traffic, shown live in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import typer
from rich.console import Console

from fairlane.cli.example import curl
from fairlane.compose import opened
from fairlane.demo import display
from fairlane.demo.processes import Gateway, free_port, scaled
from fairlane.demo.recovery import DemoRecovery
from fairlane.demo.traffic import Scene, playing, scenery
from fairlane.engine import Engine
from fairlane.errors import FairlaneError
from fairlane.model.state import LIVE, State
from fairlane.servers import Postgres, Redis, ServerFailed

JOBS_PER_LOOKUP = 1_000
"""Jobs per query of the ledger."""


def run(seconds: float, data: Path | None, speed: float, port: int, cluster: bool) -> None:
    with contextlib.ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-")))
            port = free_port(port)
            if cluster:
                variables = _servers(stack)
            else:
                variables = {"FAIRLANE_SERVER__DATA": str((data or folder).absolute())}
            sound = asyncio.run(_run(seconds, folder, variables, speed, port))
        except (FairlaneError, ServerFailed, OSError) as error:
            typer.echo(f"fairlane: {error}", err=True)
            raise typer.Exit(1) from None
    if not sound:
        raise typer.Exit(1)


def _servers(stack: contextlib.ExitStack) -> dict[str, str]:
    """The URLs of a private PostgreSQL and Redis that run as long as the demo."""
    return {
        "FAIRLANE_SERVER__DATABASE_URL": stack.enter_context(Postgres(fsync=True)).url,
        "FAIRLANE_SERVER__REDIS_URL": stack.enter_context(Redis()).url,
    }


async def _run(
    seconds: float, folder: Path, variables: dict[str, str], speed: float, port: int
) -> bool:
    """Runs the demo. Returns whether no job was lost, none failed and no limit was exceeded."""
    console, stop = Console(soft_wrap=True), asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    async with scenery(speed) as scene:
        gateway = Gateway(folder, {**scaled(speed), **scene.variables(), **variables}, port)
        try:
            await gateway.start()
            for line in welcome(gateway, speed):
                console.print(line, highlight=False, markup=False)
            async with playing(scene, gateway.urls):
                await _show(gateway, scene, console, stop, seconds)
            await gateway.leave()
            lines, sound = await _summary(gateway, scene)
        finally:
            gateway.stop()
    for line in lines:
        console.print(line, highlight=False, markup=False)
    return sound


def welcome(gateway: Gateway, speed: float) -> list[str]:
    """The lines at the start: the URL, commands to try, process ids to kill."""
    url, processes = gateway.urls[0], gateway.processes
    pids = " ".join(str(process.pid) for process in processes)
    names = Counter(process.name for process in processes)
    running = ", ".join(f"{number} × {name}" for name, number in names.items())
    where = "one file" if len(processes) == 1 else "a private PostgreSQL and Redis"
    return [
        f"Fairlane: four scarce services, seven users, {speed:g} × real speed; Ctrl-C ends it",
        f"  is    {running} over {where}",
        f"  open  {url}/docs",
        f"  try   {curl(gateway.settings, url, keys=False)}",
        f"  look  curl {url}/queue/status",
        f"  kill  kill -9 {pids}   (the demo restarts it; no job is lost)",
    ]


async def _show(
    gateway: Gateway, scene: Scene, console: Console, stop: asyncio.Event, seconds: float
) -> None:
    """Updates the display until the time is over or Ctrl-C. Killed processes are restarted."""
    loop = asyncio.get_running_loop()
    began, status, recovery = loop.time(), display.Status(), DemoRecovery(gateway)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2)) as session:
        with display.shown(console) as shown:
            while not stop.is_set():
                answer = await _status(session, gateway.urls)
                status, now = answer or status, loop.time()
                passed = now - began
                for line in recovery.look(now):
                    console.print(line, highlight=False)
                scene.waiting_for = recovery.waiting_for(answer, scene, now)
                shown.show(status, scene, passed)
                if seconds and passed >= seconds:
                    break
                rest = seconds - passed if seconds else shown.every
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(shown.every, rest)):
                        await stop.wait()
    await recovery.end()


async def _status(session: aiohttp.ClientSession, urls: Sequence[str]) -> display.Status | None:
    for url in urls:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(f"{url}/queue/status") as response:
                if response.status == 200:
                    return display.Status(await response.json())
    return None


async def _summary(gateway: Gateway, scene: Scene) -> tuple[list[str], bool]:
    """The final state of every accepted job, read from the ledger after all processes ended."""
    engine = await opened(gateway.settings)
    try:
        states = await _states(engine, scene.accepted)
        wrong = [name for name, count in (await engine.check())._asdict().items() if count]
    finally:
        await engine.stop()
    accepted, done = len(scene.accepted), states[State.COMPLETED]
    lost, going_on = accepted - states.total(), sum(states[state] for state in LIVE)
    failed = states.total() - done - going_on
    fate = f"{done} done, {going_on} waiting or running, {failed} failed, {lost} lost"
    waits = " · ".join(f"{tier} {p50}/{p95}" for tier, p50, p95 in display.waits_of_tiers(scene))
    health = "NOT sound: " + ", ".join(wrong) if wrong else "sound"
    lines = [
        f"\n{accepted} jobs accepted: {fate}",
        f"a step waited for its slot, p50/p95 in s: {waits}",
        f"{scene.hiccups} hiccups and {scene.outages} outages got over",
        f"{scene.broken} calls above a limit; the ledger is {health}",
    ]
    return lines, not (lost or failed or scene.broken or wrong)


async def _states(engine: Engine, jobs: Sequence[str]) -> Counter[State]:
    found: Counter[State] = Counter()
    for start in range(0, len(jobs), JOBS_PER_LOOKUP):
        known = await engine.jobs(jobs[start : start + JOBS_PER_LOOKUP])
        found.update(job.state for job in known.values())
    return found
