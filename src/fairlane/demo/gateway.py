"""The demo's gateway: four simulated services, who has which tier, and people who want things."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from aiohttp import web

from fairlane.demo.services import Execution, SimulatedService
from fairlane.demo.subscriptions import Subscriptions
from fairlane.dispatch import Dispatcher
from fairlane.engine import Engine
from fairlane.ledger.shapes import Accepted
from fairlane.model.endpoint import Endpoint
from fairlane.model.job import NewJob
from fairlane.presets import gateway
from fairlane.priority import PriorityService

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
HICCUP = 0.02
"""How often a service answers 503 for no reason."""

OUTAGE_EVERY, OUTAGE_LASTS = 5_000, 1_000
"""Seconds of life."""


class Sent(NamedTuple):
    user: str
    at: float
    steps: int


@dataclass
class Scene:
    """What the demo has seen so far, as the people and the services see it."""

    services: list[SimulatedService]
    waits: dict[str, deque[float]] = field(
        default_factory=lambda: {tier: deque(maxlen=500) for tier in ("high", "medium", "low")}
    )
    sent: dict[str, Sent] = field(default_factory=dict)
    submitted: Counter[str] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    hiccups: int = 0
    down: str = ""

    @property
    def broken(self) -> int:
        """Calls that came above a limit. The point of it all is that there are none."""
        return sum(service.refused for service in self.services)


@asynccontextmanager
async def playing(engine: Engine, speed: float) -> AsyncIterator[Scene]:
    """Everything over real HTTP, `speed` times faster than life."""
    pipelines = gateway().pipelines
    scene = Scene([SimulatedService(each.name, each.limit) for each in gateway().services.values()])
    async with AsyncExitStack() as stack:
        for number, service in enumerate(scene.services):
            chance = random.Random(number)
            service.work = partial(_work, scene, service, chance, speed)
            service.heard = partial(_heard, scene)
            await stack.enter_async_context(service.serving())
        people = await stack.enter_async_context(Subscriptions(dict(PEOPLE)).serving())
        await stack.enter_async_context(PriorityService(engine, people.url))
        endpoints = {service.name: Endpoint(service.url) for service in scene.services}
        await stack.enter_async_context(Dispatcher(engine, endpoints, name="dispatcher"))
        tasks = [
            asyncio.create_task(_traffic(engine, scene, pipelines, speed)),
            asyncio.create_task(_outages(scene, speed)),
        ]
        try:
            yield scene
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _traffic(
    engine: Engine, scene: Scene, pipelines: dict[str, tuple[str, ...]], speed: float
) -> None:
    """Everybody wants something now and then; one user sends a great many at once."""
    chance, loop = random.Random(7), asyncio.get_running_loop()
    while True:
        user = chance.choice(list(PEOPLE))
        feature = chance.choices(("text_only", "full_pipeline"), (3, 1))[0]
        number = 15 if user == "bulk" and chance.random() < 0.3 else 1
        jobs = [NewJob(feature, {"prompt": f"a robot for {user}"}, user=user)] * number
        for outcome in await engine.submit_many(jobs):
            if isinstance(outcome, Accepted):
                scene.sent[outcome.job] = Sent(user, loop.time(), len(pipelines[feature]))
                scene.submitted[user] += 1
        await asyncio.sleep(chance.expovariate(1 / (60 / speed)))


async def _outages(scene: Scene, speed: float) -> None:
    """Now and then a service is away for a while."""
    chance = random.Random(11)
    while True:
        await asyncio.sleep(OUTAGE_EVERY / speed)
        service = chance.choice(scene.services)
        service.switches.status, scene.down = 503, service.name
        await asyncio.sleep(OUTAGE_LASTS / speed)
        service.switches.status, scene.down = 0, ""


def _heard(scene: Scene, call: Execution) -> None:
    sent = scene.sent.get(call.job)
    if sent is not None and call.step == 0 and call.attempt == 1:
        waited = asyncio.get_running_loop().time() - sent.at
        scene.waits[PEOPLE[sent.user]].append(waited)


async def _work(
    scene: Scene, service: SimulatedService, chance: random.Random, speed: float, call: Execution
) -> Any:
    sent = scene.sent.get(call.job)
    user = sent.user if sent else "?"
    scene.running[user] += 1
    try:
        if chance.random() < HICCUP:
            scene.hiccups += 1
            return web.Response(status=503)
        await asyncio.sleep(SERVICE_SECONDS[service.name] * chance.uniform(0.7, 1.3) / speed)
    finally:
        scene.running[user] -= 1
    if sent is not None and call.step + 1 == sent.steps:
        scene.done[user] += 1
        del scene.sent[call.job]
    return {"made_by": service.name}
