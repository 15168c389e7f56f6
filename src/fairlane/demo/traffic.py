"""Demo traffic: simulated services, and seven users in three tiers that submit jobs."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from aiohttp import web

from fairlane.clock import SystemClock
from fairlane.demo.api_client import RETRY_PAUSE_SECONDS, DemoClient
from fairlane.demo.priority_service import DemoPriorityService
from fairlane.demo.services import SimulatedExecution, SimulatedService

PEOPLE = {
    "ada": "high",
    "grace": "high",
    "alan": "medium",
    "edsger": "medium",
    "barbara": "medium",
    "linus": "low",
    "bulk": "low",
}
YOU = "you"
"""The user of jobs that are submitted from outside the demo."""

FLOOD_USER, FLOOD_RATE, FLOOD_JOBS = "bulk", 0.3, 15
"""This user submits many jobs at once, in this share of the requests."""

MAX_OPEN_JOBS = 40
"""A user sends no more requests while this many of their jobs are open."""

TOO_MANY_REQUESTS = 429


class Outages(NamedTuple):
    """When simulated services are unavailable, in simulated seconds. One of `names` at a time."""

    names: Sequence[str]
    first: float
    lasts: float
    every: float
    """From the end of an outage to the next one."""


class Traffic(NamedTuple):
    """What the users submit, and how the simulated services behave. Times are simulated seconds."""

    request: Callable[[random.Random, str], dict[str, Any]]
    """The fields of a new job of this user."""

    mean_seconds_between_requests: float
    work_seconds: Mapping[str, float] = {}
    """How long a call takes, by simulated service."""

    outages: Outages | None = None
    spurious_503_rate: float = 0
    """The rate at which a service answers 503 for no reason."""

    pipelines: Mapping[str, Sequence[str]] = {}
    """The steps of jobs that have more than one."""


class SubmittedJob(NamedTuple):
    user: str
    at: float
    """Unix time in seconds, when the request was sent."""


@dataclass
class SimulatedProvider:
    """Counts the calls of all its services: `most` at once, and those that it `refused` with 503
    because they were above its limit."""

    name: str
    limit: int
    running: int = 0
    most: int = 0
    refused: int = 0

    async def counted(self, work: Callable[[], Any]) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.running > self.limit:
                self.refused += 1
                return web.json_response({"detail": f"only {self.limit} at once"}, status=503)
            return await work()
        finally:
            self.running -= 1


@dataclass
class Scene:
    """What users and services have observed so far."""

    speed: float
    traffic: Traffic
    services: list[SimulatedService]
    provider: SimulatedProvider | None
    subscriptions: DemoPriorityService
    waits: defaultdict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=500))
    )
    accepted: dict[str, SubmittedJob] = field(default_factory=dict)
    submitted: Counter[str] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    over: set[str] = field(default_factory=set)
    ready: dict[str, float] = field(default_factory=dict)
    places: dict[tuple[str, int], str] = field(default_factory=dict)
    """The service that was called last, by job and step."""

    moved: int = 0
    """Calls of a step in another place than the call before."""

    hiccups: int = 0
    outages: int = 0
    down: str = ""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def broken(self) -> int:
        """Calls above a limit. The demo shows that there are none."""
        of_provider = self.provider.refused if self.provider else 0
        return of_provider + sum(service.refused for service in self.services)

    def end(self, job: str, user: str) -> None:
        """Notes that a job of this user is over. It may be told more than once."""
        if job not in self.over:
            self.over.add(job)
            self.done[user] += 1


@asynccontextmanager
async def scenery(
    speed: float,
    traffic: Traffic,
    services: Sequence[SimulatedService] = (),
    provider: SimulatedProvider | None = None,
) -> AsyncIterator[Scene]:
    """Runs the services and the Priority Service over real HTTP, at `speed` times real speed."""
    subscriptions = DemoPriorityService(dict(PEOPLE))
    scene = Scene(speed, traffic, list(services), provider, subscriptions)
    async with AsyncExitStack() as stack:
        for number, service in enumerate(services):
            service.work = partial(_call, scene, service, random.Random(number))
            service.heard = partial(_heard, scene, service)
            await stack.enter_async_context(service.serving())
        await stack.enter_async_context(scene.subscriptions.serving())
        yield scene


class DemoUsers:
    """Users that submit from time to time. One of them submits many jobs at once."""

    def __init__(self, scene: Scene, client: DemoClient) -> None:
        self._scene, self._client = scene, client
        self._chance = random.Random(7)

    async def submit(self) -> None:
        chance, scene = self._chance, self._scene
        pause = scene.traffic.mean_seconds_between_requests / scene.speed
        while True:
            user = chance.choice(list(PEOPLE))
            job = scene.traffic.request(chance, user)
            floods = user == FLOOD_USER and chance.random() < FLOOD_RATE
            if scene.submitted[user] - scene.done[user] < MAX_OPEN_JOBS:
                await self._send(user, job, FLOOD_JOBS if floods else 1)
            await asyncio.sleep(chance.expovariate(1 / pause))

    async def _send(self, user: str, job: dict[str, Any], number: int) -> None:
        scene = self._scene
        now, steps = asyncio.get_running_loop().time(), scene.traffic.pipelines
        mark = SentRequest(scene.run, user, len(steps.get(job["feature_name"], "1")), now)
        asked = {**job, "user_id": user, "input_data": {"prompt": "a robot", "demo": mark}}
        sent = SubmittedJob(user, SystemClock().now() / 1e6)
        body = {"jobs": [asked] * number}
        answer = await self._client.ask("POST", "/api/v1/jobs:batch", body)
        while answer.status == TOO_MANY_REQUESTS:
            await asyncio.sleep(RETRY_PAUSE_SECONDS)
            answer = await self._client.ask("POST", "/api/v1/jobs:batch", body)
        for result in answer.body["results"]:
            if "job" in result:
                scene.accepted[result["job"]["job_id"]] = sent
                scene.submitted[user] += 1


async def have_outages(scene: Scene) -> None:
    """Makes services unavailable from time to time."""
    plan = scene.traffic.outages
    if plan is None:
        return
    chance, pause = random.Random(11), plan.first
    while True:
        await asyncio.sleep(pause / scene.speed)
        name = chance.choice(plan.names)
        (service,) = (each for each in scene.services if each.name == name)
        service.switches.status, scene.down = 503, name
        scene.outages += 1
        await asyncio.sleep(plan.lasts / scene.speed)
        service.switches.status, scene.down = 0, ""
        pause = plan.every


class SentRequest(NamedTuple):
    """The input of a demo job: it tells the service whose job it runs."""

    run: str
    user: str
    steps: int
    at: float


def _sent(scene: Scene, call: SimulatedExecution) -> SentRequest | None:
    """None for a job of another program, or of an earlier demo on the same ledger."""
    mark = call.params.get("demo") if isinstance(call.params, dict) else None
    if not isinstance(mark, list) or mark[:1] != [scene.run]:
        return None
    return SentRequest(*mark)


def _heard(scene: Scene, service: SimulatedService, call: SimulatedExecution) -> None:
    step = (call.job, call.step)
    scene.moved += scene.places.get(step, service.name) != service.name
    scene.places[step] = service.name
    sent = _sent(scene, call)
    if sent is not None and call.attempt == 1:
        ready = scene.ready.pop(call.job, sent.at)
        scene.waits[sent.user].append(asyncio.get_running_loop().time() - ready)


async def _call(
    scene: Scene, service: SimulatedService, chance: random.Random, call: SimulatedExecution
) -> Any:
    work = partial(_work, scene, service, chance, call)
    return await (scene.provider.counted(work) if scene.provider else work())


async def _work(
    scene: Scene, service: SimulatedService, chance: random.Random, call: SimulatedExecution
) -> Any:
    sent = _sent(scene, call)
    user = sent.user if sent else YOU
    scene.running[user] += 1
    try:
        if chance.random() < scene.traffic.spurious_503_rate:
            scene.hiccups += 1
            return web.Response(status=503)
        seconds = scene.traffic.work_seconds[service.name] * chance.uniform(0.8, 1.2)
        await asyncio.sleep(seconds / scene.speed)
    finally:
        scene.running[user] -= 1
    if sent is not None and call.step + 1 < sent.steps:
        scene.ready[call.job] = asyncio.get_running_loop().time()
    elif sent is not None:
        scene.end(call.job, user)
    return {"made_by": service.name}
