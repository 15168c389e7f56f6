"""PostgreSQL dies or its answers are lost, under processes that use it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest

from fairlane.compose import shared
from fairlane.engine import Engine
from fairlane.engine.outbox_relay import publish_left_behind
from fairlane.errors import StaleLease, WrongState
from fairlane.model.attempt import Fault
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Postgres
from tests.cluster.conftest import NewFleet
from tests.cluster.fleet import LONG_ENOUGH, Process, comes_true
from tests.cluster.load import under_load
from tests.core import core_of
from tests.proxy import Proxy
from tests.world import catalog

T = TypeVar("T")

AWAY = 5.0
"""Seconds for which there is no server."""


async def test_a_database_that_dies_under_load_loses_nothing(
    new_fleet: NewFleet, durable_server: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    """I28, I1, I3: away for 5 s and until every busy process has noticed, and later restarted
    `immediate`. What was acknowledged is there, no call hangs, and all processes go on without
    being restarted. A worker without work has no reason to ask the database, and notices nothing.
    Only a call that hangs is too slow: this machine may be busy."""
    load = await under_load(await new_fleet(catalog(Service("work", limit=4))), 4)
    everybody = [load.submitter, *load.workers]
    durable_server.kill()
    gone = time.monotonic()
    await load.submitter.until(lambda: bool(load.submitter.heard("trouble")))
    for worker in load.workers:
        await worker.until(lambda worker=worker: bool(worker.heard("trouble")) or is_idle(worker))  # type: ignore[misc]
    first_troubles = [process.heard("trouble")[:1] for process in everybody]
    noticed = max(trouble[4] for troubles in first_troubles for trouble in troubles) - gone

    async def for_long() -> bool:
        return time.monotonic() - gone >= AWAY

    await comes_true(for_long)
    durable_server.start()
    back = time.monotonic()
    await load.goes_on()
    first = min(at for _, at in load.submitter.heard("accepted") if at > back) - back
    durable_server.restart(mode="immediate")
    await load.goes_on()
    await load.ends_well()
    took = sorted(words[3] for process in everybody for words in process.heard("trouble"))
    with capsys.disabled():
        print(
            f"\n{len(took)} calls failed, half of them within {took[len(took) // 2]:.2f} s, all "
            f"within {took[-1]:.2f} s, all had noticed after {noticed:.2f} s; "
            f"the first submit {first:.2f} s after its return",
            end=" ",
        )
    assert max(took[-1], noticed, first) < LONG_ENOUGH


def is_idle(worker: Process) -> bool:
    """Whether it has finished all that it was granted."""
    return len(worker.heard("granted")) == len(worker.heard("finished"))


# --- lost answers --------------------------------------------------------------------------------
class Deaf:
    """An engine that can be made to miss the answer to a commit."""

    def __init__(self, engine: Engine, proxy: Proxy) -> None:
        self.engine, self._proxy = engine, proxy

    async def unheard(self, call: Coroutine[Any, Any, T], sent: str = "COMMIT") -> T:
        """What is `sent` arrives, and commits; the answer to it is lost, and it is run again."""
        self._proxy.drop_replies(after=sent.encode())
        task = asyncio.create_task(call)
        await asyncio.wait_for(self._proxy.dropped(), LONG_ENOUGH)
        self._proxy.go_on()
        return await asyncio.wait_for(task, LONG_ENOUGH)

    async def claimed(self, job: str) -> Lease:
        (lease,) = await self.unheard(self.engine.claim(Worker("w"), 1), job)
        return lease

    async def outcomes(self, job: str) -> list[str]:
        return [each.outcome for each in await self.engine.attempts(job)]


@pytest.fixture
async def deaf(durable_server: Postgres) -> AsyncIterator[Deaf]:
    url = await durable_server.new_database()
    settings = catalog(Service("work", limit=5, max_attempts=1))
    async with Proxy(url) as proxy, await shared(settings, proxy.url, sweeping=False) as engine:
        yield Deaf(engine, proxy)
        assert not any(await engine.check())


async def test_an_unheard_submit_claim_or_result_happens_once(deaf: Deaf) -> None:
    """I6: one job, one lease, one result."""
    engine, text = deaf.engine, "this is sent"
    job = (await deaf.unheard(engine.submit(NewJob("work", text)), text)).job
    assert await engine.count(State.QUEUED) == 1
    lease = await deaf.claimed(job)
    assert (lease.job, lease.attempt, lease.fence) == (job, 1, 1)
    assert (await deaf.unheard(engine.renew([lease], lease.lease_until + 1))).lost == []
    await deaf.unheard(engine.give_back(lease), lease.token)
    assert await publish_left_behind(core_of(engine)), "the index has not heard of it either"
    lease = await deaf.claimed(job)
    assert (lease.attempt, lease.fence) == (1, 2)
    await deaf.unheard(engine.complete(lease, "done"), lease.token)
    assert await deaf.outcomes(job) == ["released", "completed"]


async def test_an_unheard_payment_is_charged_once_and_paid_back_once(deaf: Deaf) -> None:
    """I6, I14: and whoever pays is told the price."""
    engine = deaf.engine
    await deaf.unheard(engine.add_credits("ann", 100, "gift"))
    assert await engine.balance("ann") == 100
    job = (await engine.submit(NewJob("work", user="ann"))).job
    price = (await deaf.unheard(engine.skip(job))).price
    assert await engine.balance("ann") == 100 - price < 100
    await deaf.unheard(engine.cancel(job))
    assert await engine.balance("ann") == 100
    with pytest.raises(WrongState):
        await engine.cancel(job)


async def test_an_unheard_move_or_change_is_made_once(deaf: Deaf) -> None:
    """I6, I21, I23: failures, replays, cancels of what runs, limits, users, lives of the index."""
    engine = deaf.engine
    job = (await engine.submit(NewJob("work"))).job
    lease = await deaf.claimed(job)
    await deaf.unheard(engine.fail(lease, Fault.TRANSIENT), lease.token)
    assert (await engine.get(job)).state is State.DEAD
    await deaf.unheard(engine.replay(job))
    await publish_left_behind(core_of(engine))
    assert (await engine.get(job)).state is State.QUEUED
    lease = await deaf.claimed(job)
    await deaf.unheard(engine.cancel(job))
    assert await deaf.outcomes(job) == ["failed", "cancelled"]
    with pytest.raises(StaleLease):
        await engine.complete(lease)
    changes = len(await engine.audit())
    await deaf.unheard(engine.change("services", "work", "limit", 3))
    assert len(await engine.audit()) == changes + 1
    await deaf.unheard(engine.set_tier("ann", "high"))
    await deaf.unheard(engine.set_quota("ann", pending=3))
    assert len(await engine.audit()) == changes + 3
    await deaf.unheard(engine.rebuild())
    events = [event.seq for event in await core_of(engine).ledger.events(job, 0)]
    assert events == list(range(1, len(events) + 1))
