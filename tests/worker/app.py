"""A worker for processes of their own. It says on standard output what it begins, ends and cuts."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from fairlane import Context, Worker

worker = Worker(
    capacity=int(os.environ.get("CAPACITY", "4")),
    heartbeat=float(os.environ.get("HEARTBEAT", "5")),
)


def say(*words: object) -> None:
    print(*words, flush=True)


@worker.task("sleep")
@worker.task("alone")
@worker.task("four")
async def sleep(ctx: Context, seconds: float) -> dict[str, Any]:
    say("began", ctx.task_id)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        say("cut", ctx.task_id)
        raise
    say("ended", ctx.task_id)
    return {"pid": os.getpid()}


@worker.task("poison")
def poison(ctx: Context) -> None:
    say("began", ctx.task_id)
    os.kill(os.getpid(), signal.SIGKILL)
