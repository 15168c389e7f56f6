"""Rolls of jobs in PostgreSQL: they may name too many, never too few."""

from __future__ import annotations

import asyncpg
import pytest

from fairlane.clock import ManualClock
from fairlane.compose import shared
from fairlane.engine import Engine
from fairlane.ledger.postgres.connect import plain
from fairlane.model.job import NewJob
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.worker import Worker
from fairlane.servers import Databases
from tests.core import core_of
from tests.world import catalog


async def named(url: str, kind: str) -> set[str]:
    connection = await asyncpg.connect(plain(url))
    found = await connection.fetch("SELECT unnest(jobs) FROM fairlane.rolls WHERE kind = $1", kind)
    await connection.close()
    return {row[0] for row in found}


async def two_minutes_pass_for_the_server(url: str) -> None:
    connection = await asyncpg.connect(plain(url))
    await connection.execute("UPDATE fairlane.rolls SET at = at - 120000000 WHERE kind = 'live'")
    await connection.close()


async def live(engine: Engine) -> set[str]:
    return {job.id async for page in core_of(engine).ledger.live(100) for job in page}


async def test_what_has_ended_is_struck_off_the_roll_of_the_living(
    postgres_server: Databases,
) -> None:
    """I30: and what lives stays on it, however often somebody looks."""
    url = await postgres_server.new_database()
    async with await shared(catalog(), url, sweeping=False, unsafe=True) as engine:
        jobs = {
            (await engine.submit(NewJob("work"))).job,
            *[each.job for each in await engine.submit_many([NewJob("work")] * 9)],  # type: ignore[union-attr]
        }
        done = await engine.claim(Worker("w"), 4)
        for lease in done:
            await engine.complete(lease)
        running = await engine.claim(Worker("w"), 2)
        left = jobs - {lease.job for lease in done}
        for _ in range(3):
            assert await live(engine) == left
            await two_minutes_pass_for_the_server(url)
            await core_of(engine).ledger.retire(0, 0, 0, 100)
            assert await named(url, "live") == left
            assert not any(await engine.check())
        assert {lease.job for lease in running} <= await named(url, "leased")


async def test_a_job_that_is_resumed_is_among_the_living_again(postgres_server: Databases) -> None:
    """I18: also when it had been struck off."""
    url = await postgres_server.new_database()
    settings, clock = catalog(Service("work", max_wait=60)), ManualClock()
    engine = await shared(settings, url, clock=clock, sweeping=False, unsafe=True)
    async with engine:
        job = (await engine.submit(NewJob("work"))).job
        clock.advance(61_000_000)
        await core_of(engine).ledger.give_up(clock.now(), 10)
        assert (await engine.get(job)).state is State.FAILED
        await two_minutes_pass_for_the_server(url)
        await core_of(engine).ledger.retire(0, 0, 0, 100)
        assert await named(url, "live") == set()
        await engine.resume(job)
        assert await live(engine) == {job}
        assert not any(await engine.check())


async def test_a_lease_that_is_renewed_is_looked_at_again_when_it_ends(
    postgres_server: Databases,
) -> None:
    """I4: it leaves the roll only with its end."""
    url = await postgres_server.new_database()
    clock = ManualClock()
    engine = await shared(catalog(), url, clock=clock, sweeping=False, unsafe=True)
    async with engine:
        await engine.submit_many([NewJob("work")] * 2)
        worker = Worker("w")
        short, long = await engine.claim(worker, 2)
        clock.advance(worker.lease // 2)
        await engine.heartbeat(worker, [long])
        clock.advance(worker.lease // 2 + 1)
        ledger, ever = core_of(engine).ledger, worker.lease
        assert [each.job for each in await ledger.expired(clock.now(), ever, 10)] == [short.job]
        clock.advance(worker.lease)
        found = {each.job for each in await ledger.expired(clock.now(), ever, 10)}
        assert found == {short.job, long.job}
        await engine.complete(long)
        await engine.complete(short)
        assert await ledger.expired(clock.now(), ever, 10) == []
        assert await named(url, "leased") == set()


@pytest.mark.parametrize("user", ["a\x1fb", "\x1e", "\x1f", ""])
async def test_names_with_strange_characters_arrive_as_they_are(
    postgres_server: Databases, user: str
) -> None:
    """I1: also those that a batch is put together with."""
    url = await postgres_server.new_database()
    async with await shared(catalog(), url, sweeping=False, unsafe=True) as engine:
        job = (await engine.submit(NewJob("work", user=user))).job
        assert (await engine.get(job)).user == user
        (lease,) = await engine.claim(Worker(f"w{user}"), 1)
        assert (lease.job, lease.worker) == (job, f"w{user}")
        await engine.complete(lease)
        assert (await engine.get(job)).state is State.COMPLETED
