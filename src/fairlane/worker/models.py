"""The model cache of a worker: one model, replaced when a task needs another one."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from fairlane.worker_protocol.messages import LoadedModel

Loader = Callable[[str], Any]


class Models:
    """One model at a time. Tasks that still run with the previous model keep it alive
    themselves."""

    def __init__(self, loader: Loader | None, threads: Executor) -> None:
        self._loader, self._threads = loader, threads
        self._loading = asyncio.Lock()
        self._name, self._made = "", None

    async def get(self, name: str) -> tuple[Any, float | None]:
        """The loader's result for this model, and how many seconds it took to load it now. None
        without a loader or a model, and no seconds if it was loaded before."""
        if self._loader is None or not name:
            return None, None
        async with self._loading:
            if name == self._name:
                return self._made, None
            began = time.monotonic()
            self._made = await self._load(self._loader, name)
            self._name = name
            return self._made, time.monotonic() - began

    def told(self) -> LoadedModel | None:
        """The loaded model for the next poll. Its load time is in the metrics of the task that
        needed it."""
        return LoadedModel(self._name) if self._name else None

    async def _load(self, loader: Loader, name: str) -> Any:
        if inspect.iscoroutinefunction(loader):
            return await loader(name)
        return await asyncio.get_running_loop().run_in_executor(self._threads, loader, name)
