"""A server, or a part of it, stands still under load with its connections open, and goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import asyncpg
import pytest

from fairlane.ledger.postgres.fast_path import CONFIRM, SETTLE, SUBMIT
from fairlane.ledger.postgres.named_parameters import Statement
from fairlane.model.service import Service
from fairlane.servers import Redis
from tests.cluster.conftest import NewFleet
from tests.cluster.fleet import LONG_ENOUGH, comes_true
from tests.cluster.load import Load, under_load
from tests.world import catalog

pytestmark = pytest.mark.long

STANDSTILL = 10.0
SETTINGS = catalog(Service("work", limit=8))


async def test_a_redis_that_stands_still_for_ten_seconds_costs_time_and_nothing_else(
    new_fleet: NewFleet, own_redis: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    """I32, I1, I3: it keeps everybody's connections and answers nobody, for three leases. Submits
    are accepted meanwhile, and run, once, when it goes on; who works all the while keeps the
    lease."""
    fleet = await new_fleet(SETTINGS)
    load = await under_load(fleet, 7)
    slow = await fleet.opened(real_time=True)
    slow.tell("work", worker="slow", at_once=1, lasts=STANDSTILL + 2, heartbeat=1)
    await slow.until(lambda: bool(slow.heard("granted")))
    with paused(own_redis):
        began = time.monotonic()
        accepted = len(load.accepted)
        await stands_still(began)
        over = time.monotonic()
        assert len(load.accepted) > accepted + 5
    await load.goes_on()
    tell(capsys, load, began, over)
    await slow.until(lambda: bool(slow.heard("finished") or slow.heard("stale")))
    assert slow.heard("stale") == []
    await slow.kill()
    await load.ends_well()


@pytest.mark.parametrize(
    "statement",
    [SUBMIT.sql, Statement(CONFIRM).sql, SETTLE.sql],
    ids=["submit", "claim", "result"],
)
async def test_a_backend_that_stands_still_in_a_write_costs_time_and_nothing_else(
    new_fleet: NewFleet, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """I32, I1, I3: for three leases. Whoever needs the rows it has locked waits for it, or gives up
    and tries again. It then goes on with what nobody may wait for any more."""
    fleet = await new_fleet(SETTINGS)
    load = await under_load(fleet, 8)
    async with stopped_in(statement, fleet.database):
        began = time.monotonic()
        await stands_still(began)
        over = time.monotonic()
    await load.goes_on()
    tell(capsys, load, began, over)
    await load.ends_well()


@contextmanager
def paused(redis: Redis) -> Iterator[None]:
    redis.pause()
    try:
        yield
    finally:
        redis.resume()


async def stands_still(began: float) -> None:
    """Returns when the fault has lasted as long as it must."""

    async def long_enough() -> bool:
        return time.monotonic() - began >= STANDSTILL

    await comes_true(long_enough)


WRITING = """
SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'transactionid' AND granted AND datname = current_database()
AND state = 'active' AND left(query, 200) = left($1, 200) AND pid = coalesce($2, pid)
"""


@asynccontextmanager
async def stopped_in(statement: str, database: str) -> AsyncIterator[None]:
    """One backend stands still inside the block, in this statement, when it has written something
    and not committed yet."""
    connection = await asyncpg.connect(database)
    pid = None
    try:
        async with asyncio.timeout(LONG_ENOUGH):
            while pid is None:
                found = await connection.fetchval(WRITING, statement, None)
                if found is not None:
                    pid = await stopped(connection, statement, found)
        yield
    finally:
        if pid is not None:
            os.kill(pid, signal.SIGCONT)
        connection.terminate()


async def stopped(connection: asyncpg.Connection, statement: str, pid: int) -> int | None:
    """The same if it stands still in there, none if it was over before that."""
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(2):
            still = await connection.fetchval(WRITING, statement, pid)
    except TimeoutError:  # it holds what even a look at the locks needs
        return pid
    if still is None:
        os.kill(pid, signal.SIGCONT)
        return None
    return pid


def accepted_between(load: Load, began: float, over: float) -> int:
    return sum(began < at < over for _, at in load.submitter.heard("accepted"))


def tell(capsys: pytest.CaptureFixture[str], load: Load, began: float, over: float) -> None:
    troubles = [
        words for each in (load.submitter, *load.workers) for words in each.heard("trouble")
    ]
    longest = max((words[3] for words in troubles), default=0.0)
    finished = [at for each in load.workers for _, _, at in each.heard("finished")]
    first = min((at for at in finished if at > over), default=over) - over
    with capsys.disabled():
        print(
            f"\n{accepted_between(load, began, over)} accepted and "
            f"{sum(began < at < over for at in finished)} finished meanwhile, {len(troubles)} "
            f"calls failed within {longest:.1f} s; the first finished {first:.2f} s after",
            end=" ",
        )
