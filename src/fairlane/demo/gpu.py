"""The GPU of the generation demo: a real worker with one place, whose models take time to load.
It prints what it does; `worker_log.py` reads it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fairlane.demo.worker_log import running, write
from fairlane.worker import Worker
from fairlane.worker.context import Context

SPEED_VARIABLE = "FAIRLANE_DEMO_SPEED"
LOAD_SECONDS = 3.5
WORK_SECONDS_PER_SECOND = 0.5
"""Seconds of work for one second of music or audio."""

PARTS = 20
"""The progress is reported after each part of the work."""

_speed = float(os.environ.get(SPEED_VARIABLE, "1"))


async def load(model: str) -> str:
    write("loads", model)
    await asyncio.sleep(LOAD_SECONDS / _speed)
    write("loaded", model)
    return model


worker = Worker(capacity=1, loader=load, heartbeat=1, grace=1)


@worker.task("generate")
async def generate(ctx: Context, duration: float = 10, **_: Any) -> dict[str, Any]:
    with running(ctx.task_id, ctx.model_name):
        for part in range(PARTS):
            ctx.progress(100 * part / PARTS)
            await asyncio.sleep(duration * WORK_SECONDS_PER_SECOND / PARTS / _speed)
    return {"url": f"https://cdn.example/{ctx.task_id}.wav", "duration": duration}
