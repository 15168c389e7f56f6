"""A queue in real time on real servers, with a gateway before it, and worker processes of the SDK
that reach it either way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fairlane.compose import cluster
from fairlane.engine import Engine
from fairlane.model.catalog import Catalog
from fairlane.model.job import NewJob
from fairlane.servers import Postgres, Redis
from tests.api.server import gateway
from tests.cluster.fleet import comes_true
from tests.core import core_of
from tests.worker.process import WorkerProcess, working
from tests.worker.scene import Way


class Scene:
    def __init__(
        self, engine: Engine, reached: dict[Way, list[str]], stack: AsyncExitStack
    ) -> None:
        self.engine, self._reached, self._stack = engine, reached, stack

    async def worker(self, way: Way, **environment: object) -> WorkerProcess:
        return await self._stack.enter_async_context(working(*self._reached[way], **environment))

    async def submit(self, name: str, tier: str | None = None, **parameters: object) -> str:
        return (await self.engine.submit(NewJob(name, parameters, tier=tier))).job


@asynccontextmanager
async def scene(postgres: Postgres, redis: Redis, settings: Catalog) -> AsyncIterator[Scene]:
    database = await postgres.new_database()
    async with (
        await cluster(settings, database, redis.url) as engine,
        gateway(engine) as served,
        AsyncExitStack() as stack,
    ):
        reached: dict[Way, list[str]] = {
            "http": ["--url", served.url],
            "direct": ["--database-url", database, "--redis-url", redis.url],
        }
        yield Scene(engine, reached, stack)


async def are_idle(engine: Engine, n: int) -> None:
    """Returns when so many polls wait."""

    async def waiting() -> bool:
        return (await core_of(engine).index.stats()).idle >= n

    await comes_true(waiting)
