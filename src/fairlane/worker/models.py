"""The model cache of a worker: one model, replaced when a task needs another one."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from fairlane.worker_protocol.messages import MAX_TASKS_IN_A_ROW, LoadedModel

Loader = Callable[[str], Any]


class Models:
    """One model at a time. Tasks that still run with the previous model keep it alive
    themselves."""

    def __init__(self, loader: Loader | None, threads: Executor) -> None:
        self._loader, self._threads = loader, threads
        self._loading = asyncio.Lock()
        self._name, self._made = "", None
        self._needed, self._needed_since, self._tasks = "", 0.0, 0

    async def get(self, name: str) -> tuple[Any, float | None]:
        """The loader's result for this model, and how many seconds it took to load it now. None
        without a loader or a model, and no seconds if it was loaded before."""
        if self._loader is None or not name:
            return None, None
        self._count(name)
        async with self._loading:
            if name == self._name:
                return self._made, None
            began = time.monotonic()
            try:
                self._made = await self._load(self._loader, name)
            except BaseException:
                self._needed, self._needed_since, self._tasks = self._name, began, 0
                raise
            self._name = name
            return self._made, time.monotonic() - began

    def told(self) -> LoadedModel | None:
        """The model for the next poll: the one that was needed last, even while it is loading. Its
        load time is in the metrics of the task that loaded it."""
        if not self._needed:
            return None
        age = round((time.monotonic() - self._needed_since) * 1_000_000)
        return LoadedModel(self._needed, 0, age, min(self._tasks, MAX_TASKS_IN_A_ROW))

    def _count(self, name: str) -> None:
        if name != self._needed:
            self._needed, self._needed_since, self._tasks = name, time.monotonic(), 0
        self._tasks += 1

    async def _load(self, loader: Loader, name: str) -> Any:
        if inspect.iscoroutinefunction(loader):
            return await loader(name)
        return await asyncio.get_running_loop().run_in_executor(self._threads, loader, name)
