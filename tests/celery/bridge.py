"""A queue whose service is a task of the test's Celery app, and the dispatcher between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fairlane.compose import embedded
from fairlane.dispatch import Dispatcher
from fairlane.engine import Engine
from fairlane.model.attempt import Attempt
from fairlane.model.catalog import Catalog
from fairlane.model.celery_bridge import CeleryBridge, CeleryTask
from fairlane.model.job import Job, NewJob
from fairlane.model.service import Executor, Service
from fairlane.model.state import State
from fairlane.presets import tasks
from tests.celery.site import POLL_SECONDS, WITHIN_SECONDS, Site, Worker

LEASE_SECONDS = 3.0


class Bridge:
    def __init__(self, site: Site, engine: Engine, dispatcher: Dispatcher) -> None:
        self.site, self.engine, self.dispatcher = site, engine, dispatcher

    async def submit(self, given: Any = None, user: str = "ada") -> str:
        return (await self.engine.submit(NewJob("work", input=given, user=user))).job

    async def ended(self, job: str) -> Job:
        async with asyncio.timeout(WITHIN_SECONDS):
            return await self.engine.wait(job)

    async def result(self, job: str) -> Any:
        found = await self.ended(job)
        assert found.state is State.COMPLETED, found
        _, context = await self.engine.payload(job)
        return context["step_0_work"]["data"]

    async def attempts(self, job: str) -> list[Attempt]:
        return await self.engine.attempts(job)

    async def started(self, name: str) -> int:
        return await asyncio.to_thread(self.site.started, name)

    @asynccontextmanager
    async def worker(self, *arguments: str, name: str) -> AsyncIterator[Worker]:
        """One more worker. It starts in a thread, so that the dispatcher can renew its leases."""
        starting = self.site.worker(*arguments, name=name)
        worker = await asyncio.to_thread(starting.__enter__)
        try:
            yield worker
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Waits for what other processes bring about. The condition may be a coroutine function."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while True:
                found = condition()
                if await found if asyncio.iscoroutine(found) else found:
                    return
                await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def bridged(
    site: Site,
    task: str,
    *,
    limit: int = 2,
    lease: float = LEASE_SECONDS,
    result_backend: str = "",
    start_timeout: float = 30,
    **service: Any,
) -> AsyncIterator[Bridge]:
    """The service "work" is this task."""
    terms = {"timeout": 60, "max_attempts": 3, "backoff": (0.1,), **service}
    work = Service("work", executor=Executor.CELERY, limit=limit, **terms)
    engine = await embedded(Catalog(tasks().tiers, [work]), site.folder / "ledger.db")
    url = site.server.url
    celery = CeleryBridge(
        url,
        result_backend or url,
        {"work": CeleryTask(f"tests.celery.app.{task}")},
        start_timeout,
    )
    async with engine, Dispatcher(engine, {}, celery=celery, lease=lease, grace=0) as dispatcher:
        yield Bridge(site, engine, dispatcher)
