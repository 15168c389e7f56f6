"""The workers of the tasks demo, each in a process of its own. They print what they do;
`worker_log.py` reads it."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

from fairlane.demo.worker_log import running, write
from fairlane.worker import Worker
from fairlane.worker.context import Context

SPEED_VARIABLE = "FAIRLANE_DEMO_SPEED"
LOAD_SECONDS = 20
WORK_SECONDS = {"draw": 60, "transcribe": 90, "resize": 40, "report": 120, "hello": 10}
"""How long a task takes, by task type."""

PARTS = 5
"""The progress is reported after each part of the work."""

_speed = float(os.environ.get(SPEED_VARIABLE, "1"))


async def load(model: str) -> str:
    write("loads", model)
    await asyncio.sleep(LOAD_SECONDS / _speed)
    write("loaded", model)
    return model


async def work(ctx: Context, **_: Any) -> dict[str, Any]:
    seconds = WORK_SECONDS[ctx.task_type] * random.uniform(0.8, 1.2)
    with running(ctx.task_id, ctx.model_name):
        for part in range(PARTS):
            ctx.progress(100 * part / PARTS)
            await asyncio.sleep(seconds / PARTS / _speed)
    return {"made_by": ctx.task_type}


def _worker(name: str, capacity: int, task_types: tuple[str, ...], *capabilities: str) -> Worker:
    made = Worker(
        capacity=capacity,
        capabilities=capabilities,
        name=name,
        loader=load,
        heartbeat=1,
        grace=1,
    )
    for task_type in task_types:
        made.task(task_type)(work)
    return made


gpu_1 = _worker("gpu_1", 2, ("draw", "transcribe"), "gpu")
gpu_2 = _worker("gpu_2", 2, ("draw", "transcribe"), "gpu")
cpu = _worker("cpu", 3, ("resize", "hello"))
large = _worker("large", 2, ("report", "resize"), "large-memory")

CAPACITIES = {worker.offer.name: worker.offer.capacity for worker in (gpu_1, gpu_2, cpu, large)}
"""How many tasks each worker runs at once, by the name of its variable."""
