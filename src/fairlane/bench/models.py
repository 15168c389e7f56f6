"""Model affinity benchmark: loads and waits under each affinity rule, with real processes that take
time to load a model. The load is open loop, and the same jobs arrive under every rule. Times are a
tenth of those of the generation preset."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from statistics import fmean, quantiles
from typing import NamedTuple

import uvloop

from fairlane import AsyncClient, JobRequest
from fairlane.bench.http_client import HOST, server
from fairlane.bench.model_gpu import LOAD_SECONDS, NAME, RECORD, STARTS, GpuStart
from fairlane.compose import cluster
from fairlane.config.load import without_settings
from fairlane.presets import tasks
from fairlane.servers import Postgres, Redis

RULES, LOADS = ("none", "batch", "residency"), (0.6, 0.8)
"""The compared affinity rules, and the shares of capacity that the work alone takes."""

MODELS = ("music", "audio")
LOAD, WORK = 0.35, 0.5
"""Seconds: to load a model, and the mean of the work, which is exponential."""

TIERS = {"admin": 2, "creator": 6, "premium": 12, "supporter": 25, "free": 55}
"""The tiers, best first, and their shares of the jobs in percent."""

PATIENCE = {"admin": 3, "creator": 4.5, "premium": 6, "supporter": 9, "free": 12}
"""Seconds after which a waiting job of this tier counts as aged."""

JOBS, SHORT_JOBS, CALLED_SLOTS = 150, 12, 2
NOT_COUNTED = 0.1
"""The share of the first jobs that are not counted: the queue was empty before them."""

SEED = 17
POLL_SECONDS = 0.05


class TimedJob(NamedTuple):
    """A job: when it is due after the start (seconds), its tier, model and work (seconds)."""

    due: float
    tier: str
    model: str
    work: float


class RuleUnderLoad(NamedTuple):
    """One line of the table: a rule under a load."""

    rule: str
    load: float
    jobs: int
    slots: int
    called: bool
    on_cluster: bool


class WaitSeconds(NamedTuple):
    """Seconds from the due time until the work begins, the load of the model included."""

    mean: float
    p95: float


class RuleOutcome(NamedTuple):
    """`loads`: model loads among the counted jobs. `loading`: the share of the GPUs' time that they
    took. `left`: jobs that had not started when the last one arrived."""

    cell: RuleUnderLoad
    counted: int
    loads: int
    loading: float
    everyone: WaitSeconds
    best: WaitSeconds
    free: WaitSeconds
    left: int


def outcomes(jobs: int, *, called: bool, on_cluster: bool) -> list[RuleOutcome]:
    """All cells at once: they sleep most of the time, each in its own processes."""
    slots = CALLED_SLOTS if called else 1
    cells = [
        RuleUnderLoad(rule, load, jobs, slots, called, on_cluster)
        for load in LOADS
        for rule in RULES
    ]
    return uvloop.run(_all(cells))


async def _all(cells: list[RuleUnderLoad]) -> list[RuleOutcome]:
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres(fsync=True)) if cells[0].on_cluster else None
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(measured(cell, postgres)) for cell in cells]
    return [each.result() for each in running]


async def measured(cell: RuleUnderLoad, postgres: Postgres | None = None) -> RuleOutcome:
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        starts = Path(folder) / "starts"
        starts.touch()
        wanted = arrivals(cell)
        async with _queue(cell, starts, postgres) as url, AsyncClient(url) as client:
            await _submit(client, -1, 0, TimedJob(0, "admin", MODELS[0], 0))
            await _recorded(starts, 1)  # the GPUs are there
            begin = time.monotonic_ns()
            await _submit_all(client, wanted, begin)
            await _recorded(starts, 1 + len(wanted))
        return outcome(cell, wanted, GpuStart.read(starts)[1:], begin)


async def _recorded(starts: Path, n: int) -> None:
    """Returns when this many jobs have started."""
    while starts.stat().st_size < n * RECORD.size:  # noqa: ASYNC110, ASYNC240 - a file
        await asyncio.sleep(POLL_SECONDS)


def arrivals(cell: RuleUnderLoad) -> list[TimedJob]:
    """The same jobs for every rule: Poisson arrivals, and half of the jobs for each model."""
    dice, at, found = random.Random(SEED), 0.0, []
    for _ in range(cell.jobs):
        at += dice.expovariate(cell.load * cell.slots / WORK)
        (tier,) = dice.choices([*TIERS], [*TIERS.values()])
        found.append(TimedJob(at, tier, dice.choice(MODELS), dice.expovariate(1 / WORK)))
    return found


async def _submit_all(client: AsyncClient, wanted: list[TimedJob], begin: int) -> None:
    """Submits each job when it is due, whether or not the one before is answered."""

    async def submit(number: int, job: TimedJob) -> None:
        due = begin + round(job.due * 1e9)
        await asyncio.sleep((due - time.monotonic_ns()) / 1e9)
        await _submit(client, number, due, job)

    async with asyncio.TaskGroup() as group:
        for number, job in enumerate(wanted):
            group.create_task(submit(number, job))


async def _submit(client: AsyncClient, number: int, due: int, job: TimedJob) -> None:
    sent = {"number": number, "due": due, "seconds": job.work}
    user = f"user-{number}"
    request = JobRequest(NAME, sent, user=user, priority=job.tier, model=job.model)
    await client.submit_many([request])


def outcome(
    cell: RuleUnderLoad, wanted: list[TimedJob], starts: list[GpuStart], begin: int
) -> RuleOutcome:
    first, last_due = round(cell.jobs * NOT_COUNTED), begin + round(wanted[-1].due * 1e9)
    counted = [each for each in starts if each.number >= first]
    span = max(each.started for each in counted) - min(each.due for each in counted)

    def waits(tiers: Iterable[str]) -> WaitSeconds:
        found = [
            (each.started - each.due) / 1e9 for each in counted if wanted[each.number].tier in tiers
        ]
        return _waits(found)

    return RuleOutcome(
        cell,
        len(counted),
        sum(each.load > 0 for each in counted),
        sum(each.load for each in counted) / (span * cell.slots),
        waits(TIERS),
        waits(("admin", "creator")),
        waits(("free",)),
        sum(each.started > last_due for each in starts),
    )


def _waits(found: list[float]) -> WaitSeconds:
    if not found:
        return WaitSeconds(0, 0)
    return WaitSeconds(fmean(found), quantiles(found, n=20)[-1] if len(found) > 1 else found[0])


# --- the processes -------------------------------------------------------------------------------
@asynccontextmanager
async def _queue(
    cell: RuleUnderLoad, starts: Path, postgres: Postgres | None
) -> AsyncIterator[str]:
    """The URL of a server with its GPUs: a called service, or a pull worker."""
    async with AsyncExitStack() as stack:
        stores = {} if postgres is None else await _stores(stack, postgres)
        gpu = {**without_settings(os.environ), STARTS: str(starts), LOAD_SECONDS: str(LOAD)}
        service = ""
        if cell.called:
            process = await _started(stack, "fairlane.bench.model_gpu", env=gpu)
            if process.stdout is None:
                raise RuntimeError("the service says nothing")
            service = (await process.stdout.readline()).decode().strip()
        served = await stack.enter_async_context(server(settings(cell, service), stores))
        url = f"http://{HOST}:{served.port}"
        if not cell.called:
            made = ("fairlane", "worker", "fairlane.bench.model_gpu:worker", "--url", url)
            await _started(stack, *made, env=gpu)
        yield url


def settings(cell: RuleUnderLoad, service: str) -> str:
    tiers = "".join(
        f"[tiers.{name}]\npromote = {{ admin = {patience} }}\n"
        for name, patience in PATIENCE.items()
    )
    url = f'url = "{service}"\n' if service else ""
    return (
        f'[tiers]\norder = {[*TIERS]}\ndefault = "free"\n{tiers}'
        f'[services.{NAME}]\n{url}limit = {cell.slots}\nfairness = "none"\n'
        f'affinity = "{cell.rule}"\nmodel_load = {LOAD}\n'
    )


async def _started(
    stack: AsyncExitStack, *module: str, env: dict[str, str]
) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *module, env=env, stdout=PIPE
    )
    stack.push_async_callback(process.wait)
    stack.callback(process.terminate)
    return process


async def _stores(stack: AsyncExitStack, postgres: Postgres) -> dict[str, str]:
    redis = stack.enter_context(Redis())
    database = await postgres.new_database()
    async with await cluster(tasks(), database, redis.url):
        pass  # opening it creates the schema
    return {"DATABASE_URL": database, "REDIS_URL": redis.url}


# --- the table -----------------------------------------------------------------------------------
COLUMNS: tuple[tuple[str, Callable[[RuleOutcome], str]], ...] = (
    ("work takes", lambda each: f"{each.cell.load:.0%}"),
    ("affinity", lambda each: f"`{each.cell.rule}`"),
    ("loads", lambda each: f"{each.loads} of {each.counted} jobs"),
    ("time loading", lambda each: f"{each.loading:.1%}"),
    ("wait, all: mean, p95", lambda each: _shown(each.everyone)),
    ("admin and creator", lambda each: _shown(each.best)),
    ("free", lambda each: _shown(each.free)),
    ("left", lambda each: str(each.left)),
)


def _shown(waits: WaitSeconds) -> str:
    return f"{waits.mean:.1f}, {waits.p95:.1f} s"


def markdown(found: list[RuleOutcome]) -> str:
    """The outcomes as a Markdown table. Waits count until the work begins, the load included."""
    lines = [[name for name, _ in COLUMNS], ["---"] * len(COLUMNS)]
    lines += [[show(each) for _, show in COLUMNS] for each in found]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
