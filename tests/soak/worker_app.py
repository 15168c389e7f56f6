"""The pull worker of a soak."""

from __future__ import annotations

from fairlane import Worker
from fairlane.worker.context import TaskFailed

worker = Worker(capacity=16)


@worker.task("pulled")
async def pulled(text: str, fails: bool) -> dict[str, str]:
    if fails:
        raise TaskFailed("planned", retriable=False)
    return {"text": text}
