"""The pull workers of the chaos suite. They write what they run, and how their
results are answered."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairlane import Context, Worker
from fairlane.worker import worker as sdk
from fairlane.worker.context import TaskFailed
from fairlane.worker.http_transport import HttpTransport
from fairlane.worker_protocol.messages import News, PollAsk, Result, Verdict
from tests.chaos.history import HistoryWriter, digest

PROCESS = os.environ["CHAOS_PROCESS"]
history = HistoryWriter(Path(os.environ["CHAOS_HISTORY"]))
leases: dict[tuple[str, int], str] = {}


class RecordingTransport(HttpTransport):
    """Listens to what the server answers."""

    async def poll(self, ask: PollAsk) -> News:
        news = await super().poll(ask)
        for task in news.tasks:
            leases[task.id, task.attempt] = digest(task.lease)
        return news

    async def report(self, results: Sequence[Result]) -> list[Verdict]:
        verdicts = await super().report(results)
        for result, verdict in zip(results, verdicts, strict=True):
            history.note(
                "result",
                job=result.ref.task,
                lease=digest(result.ref.lease),
                status=result.status,
                code=verdict.code or "",
            )
        return verdicts


setattr(sdk, "HttpTransport", RecordingTransport)  # noqa: B010 - only listens
worker = Worker(capacity=3, heartbeat=1, grace=2)


@worker.task("render")
@worker.task("tag")
async def work(ctx: Context, seconds: float, fails: int) -> dict[str, Any]:
    name = f"{PROCESS}/{uuid.uuid4()}"
    history.note(
        "call",
        id=name,
        service=ctx.task_type,
        job=ctx.task_id,
        step=sum(not key.endswith("__attempts") for key in ctx.context),
        attempt=ctx.attempt,
        process=PROCESS,
        lease=leases.get((ctx.task_id, ctx.attempt), ""),
    )
    try:
        await asyncio.sleep(seconds)
    finally:
        history.note("call_end", id=name)
    if ctx.attempt <= fails:
        raise TaskFailed("planned", retriable=True)
    return {"call": name}
