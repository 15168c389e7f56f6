"""Two engines on one PostgreSQL ledger, each with an index of its own: what one does at the same
moment as the other. Their indexes know the same jobs, so both propose everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlane.errors import FairlaneError, Refused, StaleLease, WrongState
from fairlane.ledger.shapes import Accepted, Replayed, Settled
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease
from fairlane.model.service import Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from fairlane.servers import Databases
from tests import stores
from tests.world import World, catalog


@pytest.fixture(autouse=True)
def _on_postgres(postgres_server: Databases) -> Iterator[None]:
    before, stores.present = stores.present, stores.PostgresAndMemory(postgres_server)
    yield
    stores.present = before


@asynccontextmanager
async def two_worlds(settings: Catalog, path: Path) -> AsyncIterator[tuple[World, World]]:
    one, two = World(settings, path), World(settings, path)
    two.starts = 1000  # ids of its own
    async with one, two:
        two.clock.advance(one.clock.now() - two.clock.now())
        yield one, two


async def claims(*worlds: World, n: int = 100) -> list[Lease]:
    """What all of them get when they claim at once, each under an epoch that is current."""
    found = await asyncio.gather(
        *(world.engine.claim(Worker(f"w{i}"), n) for i, world in enumerate(worlds))
    )
    return [lease for leases in found for lease in leases]


async def know_the_same(one: World, two: World) -> None:
    """Both indexes are built from the ledger; the epoch of the second is the first one's too."""
    await two.engine.rebuild()
    one.engine.core.epoch = two.engine.core.epoch
    await one.engine.core.index.begin(one.engine.core.epoch)
    async for page in one.engine.core.ledger.live(1000):
        queued = [one.engine.core.entry(job) for job in page if job.state is State.QUEUED]
        await one.engine.core.index.load(one.engine.core.epoch, queued, [])
    await one.engine.core.index.open(one.engine.core.epoch, one.clock.now())


async def test_one_key_in_two_processes_is_one_job(tmp_path: Path) -> None:
    """I12: whoever is first makes the job, the other is told about it."""
    async with two_worlds(catalog(), tmp_path / "ledger.db") as worlds:
        for n in range(30):
            job = NewJob("work", idempotency_key=f"key {n}")
            outcomes = await asyncio.gather(*(world.engine.submit(job) for world in worlds))
            assert len({outcome.job for outcome in outcomes}) == 1
            assert {type(outcome) for outcome in outcomes} == {Accepted, Replayed}
        assert await worlds[0].engine.count(State.QUEUED) == 30


async def test_the_last_places_of_a_quota_go_to_one_of_two_processes(tmp_path: Path) -> None:
    """I13: ten requests in two processes for five places."""
    tiers = Tiers([Tier("only", pending=5)])
    async with two_worlds(catalog(tiers=tiers), tmp_path / "ledger.db") as worlds:
        for user in ("ada", "bob", "cleo"):
            found = await asyncio.gather(
                *(
                    world.engine.submit_many([NewJob("work", user=user)])
                    for world in worlds
                    for _ in range(5)
                )
            )
            outcomes = [outcome for (outcome,) in found]
            assert sum(isinstance(outcome, Accepted) for outcome in outcomes) == 5
            assert sum(isinstance(outcome, Refused) for outcome in outcomes) == 5


async def test_the_last_places_of_the_queue_are_counted_exactly(tmp_path: Path) -> None:
    """I13: the limit of the whole queue, under concurrent submits of many users."""
    settings = catalog(limits=Limits(waiting=25))
    async with two_worlds(settings, tmp_path / "ledger.db") as worlds:
        found = await asyncio.gather(
            *(
                world.engine.submit_many([NewJob("work", user=f"user {n}")] * 3)
                for world in worlds
                for n in range(10)
            )
        )
        accepted = sum(isinstance(each, Accepted) for outcomes in found for each in outcomes)
        assert accepted == 25
        assert await worlds[0].engine.count(State.QUEUED) == 25


async def test_a_job_that_two_indexes_propose_is_granted_once(tmp_path: Path) -> None:
    """I3, I27: the row decides."""
    async with two_worlds(catalog(), tmp_path / "ledger.db") as (one, two):
        jobs = await one.submit_all([NewJob("work", n) for n in range(60)])
        await know_the_same(one, two)
        leases = await claims(one, two)
        leases += await claims(one, two)
        assert sorted(lease.job for lease in leases) == sorted(jobs)
        await one.healthy()


async def test_two_indexes_never_exceed_a_limit(tmp_path: Path) -> None:
    """I7: both believe that all four slots are free."""
    async with two_worlds(catalog(Service("work", limit=4)), tmp_path / "ledger.db") as (one, two):
        await one.submit_all([NewJob("work", n) for n in range(40)])
        await know_the_same(one, two)
        for _ in range(5):
            leases = await claims(one, two, n=4)
            assert len(await one.engine.core.ledger.slots()) <= 4
            running = await one.engine.count(State.RUNNING)
            assert running == len(leases) <= 4
            for lease in leases:
                await one.engine.complete(lease)
                await two.engine.core.index.drop([lease.token], two.clock.now())
            await know_the_same(one, two)
        await one.healthy()


async def test_the_last_two_cells_end_their_parent_once(tmp_path: Path) -> None:
    """I20: settled by two processes at the same moment."""
    async with two_worlds(catalog(), tmp_path / "ledger.db") as (one, two):
        for _ in range(40):
            parent = await one.submit(matrix={"model": ("a", "b")})
            first, second = await one.claim(2)
            outcomes = await asyncio.gather(one.engine.complete(first), two.engine.complete(second))
            assert [each.ended_parent for each in outcomes if each.ended_parent] == [parent]
            assert (await one.job(parent)).state is State.COMPLETED
        await one.healthy()


async def test_a_result_and_a_cancel_at_once_have_one_winner(tmp_path: Path) -> None:
    """I21: the loser is told."""
    async with two_worlds(catalog(), tmp_path / "ledger.db") as (one, two):
        for _ in range(40):
            job = await one.submit()
            lease = await one.claim_one()
            settled, cancelled = await asyncio.gather(
                one.engine.complete(lease), two.engine.cancel(job), return_exceptions=True
            )
            state = (await one.job(job)).state
            if state is State.COMPLETED:
                assert isinstance(settled, Settled)
                assert isinstance(cancelled, WrongState)
            else:
                assert state is State.CANCELLED
                assert isinstance(settled, StaleLease)
                assert cancelled is None
        await one.healthy()


async def test_a_skip_is_charged_once_by_two_processes(tmp_path: Path) -> None:
    """I14: and nobody goes below zero."""
    async with two_worlds(catalog(Service("work", limit=1)), tmp_path / "ledger.db") as (one, two):
        await one.engine.add_credits("ada", 1000, "gift")
        for _ in range(15):
            job = await one.submit(user="ada")
            before = await one.engine.balance("ada")
            outcomes = await asyncio.gather(
                one.engine.skip(job), two.engine.skip(job), return_exceptions=True
            )
            assert not [each for each in outcomes if isinstance(each, FairlaneError)]
            price = max(each.price for each in outcomes if not isinstance(each, BaseException))
            assert await one.engine.balance("ada") == before - price
        await one.healthy()


async def test_a_value_that_cannot_be_sent_harms_only_its_own_call(tmp_path: Path) -> None:
    """A name that is no text shares a transaction with ten good requests."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        requests = [NewJob("work", user=f"user {n}") for n in range(10)]
        requests.insert(5, NewJob("work", user="half a \ud800 letter"))
        outcomes = await asyncio.gather(
            *(world.engine.submit(request) for request in requests), return_exceptions=True
        )
        assert isinstance(outcomes.pop(5), FairlaneError)
        assert all(isinstance(outcome, Accepted) for outcome in outcomes), outcomes
