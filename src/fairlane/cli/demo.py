"""`fairlane demo`: a complete queue with traffic, shown live in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
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
from fairlane.demo.demo import Demo, Fate, Status
from fairlane.demo.gateway_demo import GatewayDemo
from fairlane.demo.generation_demo import GenerationDemo
from fairlane.demo.processes import DemoProcesses, free_port, scaled
from fairlane.demo.recovery import DemoRecovery
from fairlane.demo.regions_demo import RegionsDemo
from fairlane.demo.screen import shown
from fairlane.demo.tasks_demo import TasksDemo
from fairlane.engine import Engine
from fairlane.errors import FairlaneError
from fairlane.model.state import LIVE, State
from fairlane.servers import Postgres, Redis, ServerFailed

JOBS_PER_LOOKUP = 1_000
"""Jobs per query of the ledger."""

DEMOS: dict[str, type[Demo]] = {
    demo.preset: demo for demo in (GatewayDemo, GenerationDemo, RegionsDemo, TasksDemo)
}


def run(
    preset: str, seconds: float, data: Path | None, speed: float | None, port: int, cluster: bool
) -> None:
    demo = DEMOS[preset](speed)
    with contextlib.ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-")))
            port = free_port(port)
            if cluster:
                variables = _servers(stack)
            else:
                variables = {"FAIRLANE_SERVER__DATA": str((data or folder).absolute())}
            sound = asyncio.run(_run(demo, seconds, folder, variables, port))
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
    demo: Demo, seconds: float, folder: Path, variables: dict[str, str], port: int
) -> bool:
    """Runs the demo. Returns whether nothing went wrong that must not go wrong."""
    console, stop = Console(soft_wrap=True), asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    async with demo.world():
        settings = {**scaled(demo.preset, demo.speed), **demo.variables(), **variables}
        processes = DemoProcesses(folder, demo.preset, settings, port, demo.workers)
        try:
            await processes.start()
            for line in welcome(demo, processes):
                console.print(line, highlight=False, markup=False)
            async with demo.playing(processes):
                await _show(demo, processes, console, stop, seconds)
            await processes.leave()
            fate = await _fate(processes, demo.accepted)
            lines = demo.last_lines(fate)
        finally:
            processes.stop()
    for line in ["", *lines]:
        console.print(line, highlight=False, markup=False)
    return demo.is_sound(fate)


def welcome(demo: Demo, processes: DemoProcesses) -> list[str]:
    """The lines at the start: the URL, commands to try, process ids to kill."""
    url = processes.urls[0]
    pids = " ".join(str(process.pid) for process in processes.all)
    names = Counter(process.name for process in processes.all)
    running = ", ".join(f"{number} × {name}" for name, number in names.items())
    embedded = processes.settings.server.mode == "embedded"
    where = "one file" if embedded else "a private PostgreSQL and Redis"
    return [
        f"Fairlane: open {url}/",
        f"  is    {demo.title}, {demo.speed:g} × real speed; Ctrl-C ends it",
        f"  runs  {running} over {where}",
        f"  docs  {url}/docs",
        f"  try   {curl(processes.settings, url, keys=False)}",
        *(f"  look  curl {shlex.quote(url + path)}" for path in demo.paths),
        f"  kill  kill -9 {pids}   (the demo restarts it; no job is lost)",
    ]


async def _show(
    demo: Demo, processes: DemoProcesses, console: Console, stop: asyncio.Event, seconds: float
) -> None:
    """Updates the display until the time is over or Ctrl-C. Killed processes are restarted."""
    loop = asyncio.get_running_loop()
    began, status, recovery = loop.time(), Status(), DemoRecovery(processes)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2)) as session:
        with shown(console) as screen:
            while not stop.is_set():
                answer = await _status(session, processes.urls, demo.paths)
                status, now = answer or status, loop.time()
                passed = now - began
                for line in recovery.look(now):
                    console.print(line, highlight=False)
                held = None if answer is None else demo.held(answer)
                screen.show(demo, status, passed, recovery.waiting_for(held, now))
                if seconds and passed >= seconds:
                    break
                rest = seconds - passed if seconds else screen.every
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(screen.every, rest)):
                        await stop.wait()
    await recovery.end()


async def _status(
    session: aiohttp.ClientSession, urls: Sequence[str], paths: Sequence[str]
) -> Status | None:
    """The answers of all paths in one dict, from the first server that answers."""
    for url in urls:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            found = Status()
            for path in paths:
                async with session.get(f"{url}{path}", raise_for_status=True) as response:
                    found |= await response.json()
            return found
    return None


async def _fate(processes: DemoProcesses, accepted: Sequence[str]) -> Fate:
    """The final state of every accepted job, read from the ledger after all processes ended."""
    engine = await opened(processes.settings)
    try:
        states = await _states(engine, accepted)
        wrong = [name for name, count in (await engine.check())._asdict().items() if count]
    finally:
        await engine.stop()
    done, cancelled = states[State.COMPLETED], states[State.CANCELLED]
    live = sum(states[state] for state in LIVE)
    failed = states.total() - done - cancelled - live
    return Fate(len(accepted), done, live, cancelled, failed, len(accepted) - states.total(), wrong)


async def _states(engine: Engine, jobs: Sequence[str]) -> Counter[State]:
    found: Counter[State] = Counter()
    for start in range(0, len(jobs), JOBS_PER_LOOKUP):
        known = await engine.jobs(jobs[start : start + JOBS_PER_LOOKUP])
        found.update(job.state for job in known.values())
    return found
