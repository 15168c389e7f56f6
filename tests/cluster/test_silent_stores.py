"""A store goes silent: no answer comes, and no connection breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import pytest

from fairlane.api.http.problem_details import problem_of
from fairlane.compose import cluster, shared
from fairlane.engine import Engine
from fairlane.errors import NotReady, Refused, is_store_error
from fairlane.index.index import Index
from fairlane.model.job import NewJob
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Postgres, Redis
from tests.cluster.fleet import LONG_ENOUGH, comes_true
from tests.core import core_of
from tests.proxy import Proxy
from tests.world import catalog

SOON = 10.0
"""Seconds in which something is noticed, promised to be two, on a busy machine. What was wrong took
from 30 to 75."""

SETTINGS = catalog(Service("work", limit=5))


class Stores:
    """A queue of this process, and what stands between it and its stores."""

    def __init__(self, engine: Engine, database: Proxy, redis: Proxy) -> None:
        self.engine, self.database, self.redis = engine, database, redis


@pytest.fixture
async def stores(durable_server: Postgres, own_redis: Redis) -> AsyncIterator[Stores]:
    url = await durable_server.new_database()
    async with (
        Proxy(url) as database,
        Proxy(own_redis.url) as redis,
        await cluster(SETTINGS, database.url, redis.url, prefix=f"{{{url[-12:]}}}:") as engine,
    ):
        yield Stores(engine, database, redis)
        assert not any(await engine.check())


async def failing(call: Coroutine[Any, Any, object]) -> float:
    """Seconds after which it says that a store is away."""
    began = time.monotonic()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - looked at below
        await asyncio.wait_for(call, LONG_ENOUGH)
    took = time.monotonic() - began
    problem = problem_of(caught.value)
    assert (problem.status_code, problem.headers) == (503, {"Retry-After": "1"}), caught.value
    return took


async def working(call: Callable[[], Awaitable[object]]) -> float:
    """Seconds after which it works, tried again and again as callers do."""
    began = time.monotonic()
    async with asyncio.timeout(LONG_ENOUGH):
        while True:
            try:
                await call()
            except Exception as error:
                if not isinstance(error, NotReady) and not is_store_error(error):
                    raise
                await asyncio.sleep(0.02)
            else:
                return time.monotonic() - began


async def test_a_silent_database_is_noticed_and_come_back_to(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    """S: writes and reads fail soon, others at once while it lasts, and all work again soon after
    it speaks to new connections, although the old ones stay silent for ever."""
    engine = stores.engine
    job = (await engine.submit(NewJob("work"))).job
    await asyncio.gather(*(engine.get(job) for _ in range(10)))
    stores.database.silence()
    noticed = await asyncio.gather(
        *(failing(engine.submit(NewJob("work"))) for _ in range(3)),
        *(failing(engine.get(job)) for _ in range(20)),
    )
    refused = await failing(engine.submit(NewJob("work")))
    stores.database.end_silence()
    back = await working(lambda: engine.submit(NewJob("work")))
    with capsys.disabled():
        print(f"\nnoticed after {max(noticed):.2f} s, then refused after {refused:.2f} s,", end=" ")
        print(f"back after {back:.2f} s", end=" ")
    assert max(noticed) < SOON
    assert refused < max(noticed)
    assert back < SOON


async def test_one_silent_connection_is_left_while_the_others_answer(stores: Stores) -> None:
    """What was asked on it is asked again on another, and the caller notices nothing else: one job,
    although the server had committed it before."""
    engine = stores.engine
    stores.database.drop_replies(after=b"this is sent")
    submit = asyncio.create_task(engine.submit(NewJob("work", "this is sent")))
    await stores.database.dropped()
    stores.database.silence_lost()
    async with asyncio.timeout(SOON):
        job = (await submit).job
    assert (await engine.get(job)).state is State.QUEUED
    assert await engine.count(State.QUEUED) == 1


async def test_a_slow_statement_is_not_taken_for_a_silent_one(stores: Stores) -> None:
    """It waits for a lock, longer than a lost answer is waited for, and is left alone."""
    engine = stores.engine
    job = (await engine.submit(NewJob("work"))).job
    other = await asyncpg.connect(stores.database.url, server_settings={"search_path": "fairlane"})
    async with other.transaction():
        await other.execute("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", job)
        cancel = asyncio.create_task(engine.cancel(job))
        await asyncio.wait([cancel], timeout=4)
        sessions = await other.fetchval(WAITING_FOR_A_LOCK)
        assert not cancel.done()
    await cancel
    await other.close()
    assert sessions == 1, "it has waited in one session, and was not run again"


WAITING_FOR_A_LOCK = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def test_what_was_committed_in_silence_is_there_once(stores: Stores) -> None:
    """I6: the server has committed, and its answer was swallowed. The caller hears that it is away
    and asks again by its key: one job. A claim whose answer was swallowed runs under nobody."""
    engine = stores.engine
    wanted = NewJob("work", "this is sent", idempotency_key="k")
    stores.database.drop_replies(after=b"this is sent")
    submit = asyncio.create_task(failing(engine.submit(wanted)))
    await stores.database.dropped()
    stores.database.silence()
    assert await submit < SOON
    stores.database.end_silence()
    await working(lambda: engine.submit(wanted))
    assert await engine.count(State.QUEUED) == 1


async def test_locks_of_a_silent_connection_hold_nobody_up(stores: Stores) -> None:
    """A transaction that was open when it went silent is ended by the process that left it, as soon
    as the server answers that process again."""
    engine = stores.engine
    job = (await engine.submit(NewJob("work"))).job
    stores.database.drop_replies(after=b"FOR UPDATE")
    cancel = asyncio.create_task(failing(engine.cancel(job)))
    await stores.database.dropped()
    stores.database.silence()
    await cancel
    stores.database.end_silence()
    assert await working(lambda: engine.cancel(job)) < SOON


@asynccontextmanager
async def alone(server: Postgres) -> AsyncIterator[tuple[Engine, Proxy]]:
    url = await server.new_database()
    async with Proxy(url) as proxy, await shared(SETTINGS, proxy.url) as engine:
        yield engine, proxy


async def test_who_must_be_alone_is_not_kept_out_by_its_own_silent_connection(
    durable_server: Postgres,
) -> None:
    """The server still believes in the old connection, which holds the lock."""
    async with alone(durable_server) as (engine, proxy):
        await engine.submit(NewJob("work"))
        proxy.silence()
        await failing(engine.submit(NewJob("work")))
        proxy.end_silence()
        assert await working(lambda: engine.submit(NewJob("work"))) < SOON


async def test_a_silent_redis_holds_up_neither_submits_nor_claims(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    """Submits wait once at the most, and claims work again soon after it speaks."""
    engine = stores.engine
    await engine.submit(NewJob("work"))
    await engine.claim(Worker("w"), 1)
    sleeper = asyncio.create_task(engine.claim(Worker("sleeper"), 1, wait=LONG_ENOUGH))
    stores.redis.silence()
    took = []
    for _ in range(10):
        began = time.monotonic()
        await engine.submit(NewJob("work"))
        took.append(time.monotonic() - began)
    stores.redis.end_silence()
    began = time.monotonic()
    async with asyncio.timeout(LONG_ENOUGH):
        while not await engine.claim(Worker("w"), 1, wait=1):
            pass
        back = time.monotonic() - began
        assert await sleeper
        woken = time.monotonic() - began
    with capsys.disabled():
        print(f"\nsubmits took {max(took):.2f} s and {sorted(took)[-2]:.2f} s at the most,", end="")
        print(f" claims back after {back:.2f} s, a sleeper after {woken:.2f} s", end=" ")
    assert max(took) < SOON
    assert sum(took) < 2 * SOON
    assert max(back, woken) < SOON


async def test_a_submit_commits_without_waiting_for_a_silent_redis(stores: Stores) -> None:
    """The job is in the ledger while the process still waits for the index, which has not been
    given up: the question before the commit is dropped, not its connection. The limit of the
    service holds by the last known figure."""
    engine = stores.engine
    await engine.change("services", "work", "waiting", 4)
    for _ in range(2):
        await engine.submit(NewJob("work", tier="high"))
    index = core_of(engine).index
    asked, put = asyncio.Event(), asyncio.Event()

    class Watched:
        def __getattr__(self, verb: str) -> object:
            return getattr(index, verb)

        async def lanes(self, service: str) -> object:
            try:
                return await index.lanes(service)
            except asyncio.CancelledError:
                asked.set()
                raise

        async def put(self, entries: Sequence[Entry], now: int) -> None:
            put.set()
            await index.put(entries, now)

    core_of(engine).index = cast("Index", Watched())
    stores.redis.silence()
    submit = asyncio.create_task(engine.submit(NewJob("work", tier="high")))
    async with asyncio.timeout(LONG_ENOUGH):
        await put.wait()
    assert asked.is_set(), (
        "the index was given up before the commit by the submit, not by its client"
    )
    assert not submit.done()
    assert await engine.count(State.QUEUED) == 3
    await submit
    await engine.submit(NewJob("work", tier="high"))
    with pytest.raises(Refused):
        await engine.submit(NewJob("work", tier="high"))
    assert await engine.count(State.QUEUED) == 4
    core_of(engine).index = index
    stores.redis.end_silence()


async def test_a_wake_up_that_was_swallowed_is_made_up_for(stores: Stores) -> None:
    """Only the connections that were there are silent: the worker that waits on one is woken."""
    engine = stores.engine
    sleeper = asyncio.create_task(engine.claim(Worker("sleeper"), 1, wait=LONG_ENOUGH))

    async def asleep() -> bool:
        return core_of(engine).waiting_claims > 0

    await comes_true(asleep)
    stores.redis.silence(new=False)
    began = time.monotonic()
    await engine.submit(NewJob("work"))
    assert await sleeper
    assert time.monotonic() - began < SOON
