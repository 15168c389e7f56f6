"""Demo traffic: simulated services and users."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from fairlane.demo.priority_service import DemoPriorityService
from fairlane.demo.services import SimulatedExecution, SimulatedService
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
YOU = "you"
"""The user of jobs that are submitted from outside the demo."""

MEAN_SECONDS_BETWEEN_REQUESTS = 50
"""Simulated seconds, on average, between two requests of a user."""

MAX_OPEN_JOBS = 40
"""A user sends no more requests while this many of their jobs are open."""

SPURIOUS_503_RATE = 0.02
"""The rate at which a service answers 503 for no reason."""

OUTAGE_EVERY, OUTAGE_LASTS = 5_000, 1_000
"""Simulated seconds between two outages, and of one outage."""

RETRY_PAUSE_SECONDS = 0.2
"""Seconds before a request without a response is repeated."""


@dataclass
class Scene:
    """What users and services have observed so far."""

    speed: float
    services: list[SimulatedService]
    subscriptions: DemoPriorityService
    waits: defaultdict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=500))
    )
    accepted: list[str] = field(default_factory=list)
    submitted: Counter[str] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    over: set[str] = field(default_factory=set)
    ready: dict[str, float] = field(default_factory=dict)
    hiccups: int = 0
    outages: int = 0
    down: str = ""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def broken(self) -> int:
        """Calls above a limit. The demo shows that there are none."""
        return sum(service.refused for service in self.services)

    def variables(self) -> dict[str, str]:
        """Settings as environment variables: the URLs of the services and of the Priority
        Service."""
        urls = {f"SERVICES__{each.name.upper()}": each.url for each in self.services}
        urls["PRIORITY"] = self.subscriptions.url
        return {f"FAIRLANE_{name}__URL": url for name, url in urls.items()}


@asynccontextmanager
async def scenery(speed: float) -> AsyncIterator[Scene]:
    """Runs the services and the Priority Service over real HTTP, at `speed` times real speed."""
    services = [SimulatedService(each.name, each.limit) for each in gateway().services.values()]
    scene = Scene(speed, services, DemoPriorityService(dict(PEOPLE)))
    async with AsyncExitStack() as stack:
        for number, service in enumerate(services):
            service.work = partial(_work, scene, service, random.Random(number))
            service.heard = partial(_heard, scene)
            await stack.enter_async_context(service.serving())
        await stack.enter_async_context(scene.subscriptions.serving())
        yield scene


@asynccontextmanager
async def playing(scene: Scene, urls: Sequence[str]) -> AsyncIterator[None]:
    """Runs users that submit to these URLs, and services that have an outage from time to time."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
        people = DemoUsers(scene, session, urls)
        tasks = [asyncio.create_task(people.submit()), asyncio.create_task(_outages(scene))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended


class DemoUsers:
    """Users that submit from time to time. One of them submits many jobs at once."""

    def __init__(self, scene: Scene, session: aiohttp.ClientSession, urls: Sequence[str]) -> None:
        self._scene, self._session, self._urls = scene, session, urls
        self._chance = random.Random(7)

    async def submit(self) -> None:
        chance, scene = self._chance, self._scene
        while True:
            user = chance.choice(list(PEOPLE))
            feature = chance.choices(("text_only", "full_pipeline"), (9, 1))[0]
            number = 15 if user == "bulk" and chance.random() < 0.3 else 1
            if scene.submitted[user] - scene.done[user] < MAX_OPEN_JOBS:
                await self._send(user, feature, number)
            await asyncio.sleep(
                chance.expovariate(1 / (MEAN_SECONDS_BETWEEN_REQUESTS / scene.speed))
            )

    async def _send(self, user: str, feature: str, number: int) -> None:
        """Repeats until it is accepted. The idempotency key makes that safe, also at another
        URL."""
        now, steps = asyncio.get_running_loop().time(), len(gateway().pipelines[feature])
        asked = {"prompt": "a robot", "demo": SentRequest(self._scene.run, user, steps, now)}
        job = {"feature_name": feature, "user_id": user, "input_data": asked}
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        answer = None
        while answer is None:
            for url in self._chance.sample(self._urls, len(self._urls)):
                answer = await self._post(f"{url}/api/v1/jobs:batch", [job] * number, headers)
                if answer is not None:
                    break
            else:
                await asyncio.sleep(RETRY_PAUSE_SECONDS)
        for result in answer["results"]:
            if "job" in result:
                self._scene.accepted.append(result["job"]["job_id"])
                self._scene.submitted[user] += 1

    async def _post(self, url: str, jobs: list[Any], headers: dict[str, str]) -> Any:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self._session.post(url, json={"jobs": jobs}, headers=headers) as response:
                if response.status == 200:
                    return await response.json()
        return None


async def _outages(scene: Scene) -> None:
    """Makes services unavailable from time to time."""
    chance = random.Random(11)
    while True:
        await asyncio.sleep(OUTAGE_EVERY / scene.speed)
        service = chance.choice(scene.services)
        service.switches.status, scene.down = 503, service.name
        scene.outages += 1
        await asyncio.sleep(OUTAGE_LASTS / scene.speed)
        service.switches.status, scene.down = 0, ""


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


def _heard(scene: Scene, call: SimulatedExecution) -> None:
    sent = _sent(scene, call)
    if sent is not None and call.attempt == 1:
        ready = scene.ready.pop(call.job, sent.at)
        scene.waits[sent.user].append(asyncio.get_running_loop().time() - ready)


async def _work(
    scene: Scene, service: SimulatedService, chance: random.Random, call: SimulatedExecution
) -> Any:
    sent = _sent(scene, call)
    user = sent.user if sent else YOU
    scene.running[user] += 1
    try:
        if chance.random() < SPURIOUS_503_RATE:
            scene.hiccups += 1
            return web.Response(status=503)
        await asyncio.sleep(SERVICE_SECONDS[service.name] * chance.uniform(0.8, 1.2) / scene.speed)
    finally:
        scene.running[user] -= 1
    if sent is not None and call.step + 1 < sent.steps:
        scene.ready[call.job] = asyncio.get_running_loop().time()
    elif sent is not None and call.job not in scene.over:
        scene.over.add(call.job)
        scene.done[user] += 1
    return {"made_by": service.name}
