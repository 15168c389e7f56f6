"""A worker for processes of their own. It says on standard output what it begins, ends and cuts."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
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


@worker.task("held")
async def held(ctx: Context, file: str) -> dict[str, Any]:
    """Works until the file is there."""
    say("began", ctx.task_id)
    while not Path(file).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.01)
    say("ended", ctx.task_id)
    return {"pid": os.getpid()}


@worker.task("block")
async def block(ctx: Context, file: str) -> dict[str, Any]:
    """Blocks the event loop until the file is there."""
    say("began", ctx.task_id)
    while not Path(file).exists():  # noqa: ASYNC240 - the very mistake
        time.sleep(0.01)  # noqa: ASYNC251, TID251
    say("ended", ctx.task_id)
    return {"pid": os.getpid()}


@worker.task("poison")
def poison(ctx: Context) -> None:
    say("began", ctx.task_id)
    os.kill(os.getpid(), signal.SIGKILL)
