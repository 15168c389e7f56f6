"""Several engines on one database and one Redis: what one does, the others know."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

import pytest

from fairlane import compose
from fairlane.engine.submit import Caller
from fairlane.errors import LedgerInUse, Refused, SetupError
from fairlane.model.catalog import Catalog, Limits
from fairlane.model.event import Event, EventType
from fairlane.model.job import NewJob
from fairlane.model.service import Affinity, Fairness, Service
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from fairlane.policy.eta_calibration import MIN_RATIOS
from fairlane.servers import Databases, RedisKeyspace
from fairlane.units import SECOND
from fairlane.worker.models import Models
from fairlane.worker_protocol.messages import Offer, PollAsk, Result
from fairlane.worker_protocol.service import WorkerService
from tests import stores
from tests.api.server import gateway
from tests.core import core_of
from tests.world import World, catalog

LIMITED = catalog(Service("work", limit=2))


@pytest.fixture(autouse=True)
def _on_a_cluster(postgres_server: Databases, redis_server: RedisKeyspace) -> Iterator[None]:
    before, stores.present = stores.present, stores.PostgresAndRedis(postgres_server, redis_server)
    yield
    stores.present = before


@asynccontextmanager
async def worlds(path: Path, *settings: Catalog) -> AsyncIterator[list[World]]:
    """As many as there are settings, started one after the other."""
    found = [World(each, path) for each in settings]
    for number, world in enumerate(found):
        world.starts = 1000 * number  # ids of its own
        await world.__aenter__()
        world.clock.advance(found[0].clock.now() - world.clock.now())
    try:
        yield found
    finally:
        for world in found:
            await world.__aexit__()


async def test_a_start_joins_a_living_index(tmp_path: Path) -> None:
    """I26: it does not throw away what others work with."""
    async with worlds(tmp_path / "ledger.db", LIMITED, LIMITED) as (one, two):
        assert core_of(one.engine).epoch == core_of(two.engine).epoch
        job = await one.submit()
        assert [lease.job for lease in await two.claim()] == [job]


async def test_a_rebuild_by_one_is_followed_by_the_others(tmp_path: Path) -> None:
    """I26: their next claim works, without a sweep."""
    async with worlds(tmp_path / "ledger.db", LIMITED, LIMITED) as (one, two):
        jobs = await one.submit_all([NewJob("work")] * 2)
        await one.engine.rebuild()
        assert await two.claim() == []
        assert {lease.job for lease in await two.claim(2)} == set(jobs)


async def test_many_that_find_the_index_gone_rebuild_it_once(
    tmp_path: Path, redis_server: RedisKeyspace
) -> None:
    """I36: one begins a life, all others join it."""
    async with worlds(tmp_path / "ledger.db", *[LIMITED] * 4) as every:
        job = await every[0].submit()
        before, _ = await core_of(every[0].engine).ledger.turn()
        await core_of(every[0].engine).index.begin("a life that the ledger does not know")
        await asyncio.gather(*(world.engine.sweep() for world in every))
        for world in every:
            await world.engine.sweep()
        lives = {core_of(world.engine).epoch for world in every}
        stamp, turn = await core_of(every[0].engine).ledger.turn()
        assert lives == {stamp.life} != {before.life}
        assert not turn.busy
        assert [lease.job for lease in await every[3].claim()] == [job]


async def test_a_limit_that_one_sets_holds_for_all_at_once(tmp_path: Path) -> None:
    """I7, I11: also where there was none before; who has not heard of it is granted nothing."""
    plain = catalog(Service("work"))
    async with worlds(tmp_path / "ledger.db", plain, plain) as (one, two):
        await one.submit_all([NewJob("work")] * 10)
        running = await two.claim(1)
        await one.engine.change("services", "work", "limit", 3)
        for _ in range(5):
            running += await two.claim(10, Worker("b"))
            running += await one.claim(10, Worker("a"))
        assert len(running) == 3
        assert core_of(two.engine).catalog.services["work"].limit == 3
        await one.healthy()


async def test_a_pause_holds_for_a_process_that_the_index_has_not_told(tmp_path: Path) -> None:
    async with worlds(tmp_path / "ledger.db", LIMITED, LIMITED) as (one, two):
        await one.submit()
        await one.engine.change("services", "work", "paused", value=True)
        core = core_of(two.engine)
        await core.index.configure(LIMITED, 1 << 40)  # an index that knows better
        for _ in range(3):
            assert await two.claim() == []
        assert await two.engine.count(State.QUEUED) == 1


async def test_two_changes_at_once_are_both_kept(tmp_path: Path) -> None:
    """I11: neither is made over settings that the other has replaced."""
    settings = catalog(Service("work", limit=1), Service("other", limit=1))
    async with worlds(tmp_path / "ledger.db", settings, settings) as (one, two):
        for limit in range(2, 8):
            await asyncio.gather(
                one.engine.change("services", "work", "limit", limit),
                two.engine.change("services", "other", "limit", limit),
            )
        for world in (one, two):
            await world.engine.sweep()
            known = core_of(world.engine).catalog.services
            assert {known[name].limit for name in ("work", "other")} == {7}


async def test_messages_about_limits_that_cross_leave_the_newest(tmp_path: Path) -> None:
    """I11: 8 and then 4 are set, and the index hears 4 and then 8."""
    settings = catalog(Service("work", limit=2))
    async with worlds(tmp_path / "ledger.db", settings, settings) as (one, two):
        await one.engine.change("services", "work", "limit", 8)
        late, number = core_of(one.engine).catalog, core_of(one.engine).settings
        await two.engine.change("services", "work", "limit", 4)
        await core_of(one.engine).index.configure(late, number)
        (pool,) = (await core_of(two.engine).index.stats()).pools
        assert pool.limit == 4
        await one.submit_all([NewJob("work")] * 10)
        assert len(await one.claim(10) + await one.claim(10) + await two.claim(10)) == 4


async def test_the_last_start_with_another_file_decides_for_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Live changes of what the new file leaves alone stay; who has the old file is told."""
    old = catalog(Service("work", limit=1), Service("other", limit=1))
    new = catalog(Service("work", limit=5), Service("other", limit=1))
    async with worlds(tmp_path / "ledger.db", old) as (one,):
        await one.engine.change("services", "other", "limit", 3)
        async with worlds(tmp_path / "ledger.db", new):
            await one.engine.sweep()
            known = core_of(one.engine).catalog.services
            assert (known["work"].limit, known["other"].limit) == (5, 3)
    assert "other settings" in caplog.text


async def test_a_file_without_a_service_that_jobs_need_is_refused(tmp_path: Path) -> None:
    """Those who are there go on: what one process does not know does not become the rule."""
    both = catalog(Service("work"), Service("other"))
    async with worlds(tmp_path / "ledger.db", both) as (one,):
        job = await one.submit("other")
        with pytest.raises(SetupError, match="other"):
            await World(LIMITED, tmp_path / "ledger.db").__aenter__()
        await one.engine.sweep()
        assert [lease.job for lease in await one.claim()] == [job]


async def test_a_listener_hears_of_what_another_process_does(tmp_path: Path) -> None:
    """I25: every event, in order, until the job is over."""
    async with worlds(tmp_path / "ledger.db", LIMITED, LIMITED) as (one, two):
        job = await one.submit()
        events = two.engine.events(job)
        heard = [(await anext(events)).seq]
        rest = asyncio.create_task(_seqs(events))
        (lease,) = await one.claim()
        await one.engine.complete(lease)
        await two.engine.sweep()
        heard += await asyncio.wait_for(rest, 30)
        assert heard == [event.seq for event in await core_of(one.engine).ledger.events(job, 0)]


async def _seqs(events: AsyncIterator[Event]) -> list[int]:
    return [event.seq async for event in events]


async def test_a_tier_that_one_sets_is_known_to_the_others(tmp_path: Path) -> None:
    async with worlds(tmp_path / "ledger.db", LIMITED, LIMITED) as (one, two):
        first = await two.engine.submit(NewJob("work", user="ada"))
        await one.engine.set_tier("ada", "high")
        for _ in range(5):
            await two.engine.sweep()
        second = await two.engine.submit(NewJob("work", user="ada"))
        tiers = [(await one.job(each.job)).tier for each in (first, second)]
        assert tiers == ["medium", "high"]


async def test_a_process_with_an_index_of_its_own_is_alone_with_its_database(
    postgres_server: Databases, redis_server: RedisKeyspace
) -> None:
    """The second one is told why, whichever of them has Redis."""
    database = await postgres_server.new_database()
    first = await compose.shared(LIMITED, database, unsafe=True)
    async with first:
        with pytest.raises(LedgerInUse, match="alone"):
            await compose.shared(LIMITED, database, unsafe=True)
        with pytest.raises(LedgerInUse, match="without Redis"):
            await compose.cluster(
                LIMITED, database, redis_server.url, prefix="{alone}:", unsafe=True
            )
    async with await compose.shared(LIMITED, database, unsafe=True):
        pass


async def test_what_others_start_corrects_what_is_told_here(tmp_path: Path) -> None:
    """A process that only takes jobs in still tells when they will start."""
    limited = catalog(Service("work", limit=1, fairness=Fairness.NONE))
    async with worlds(tmp_path / "ledger.db", limited, limited) as (app_context, works):
        await works.submit()
        for _ in range(MIN_RATIOS):
            await works.engine.register(Worker("w"))
            lease = await works.claim_one()
            job = await app_context.submit()
            assert (await app_context.engine.view(job)).eta is not None
            for world in (app_context, works):
                world.clock.advance(30 * SECOND)
            await works.engine.complete(lease)
        await works.engine.register(Worker("w"))
        await works.claim_one()
        for _ in range(5):
            await app_context.engine.sweep()
        told = (await app_context.engine.view(await app_context.submit())).eta
        assert told is not None
        assert round(told.p50 / SECOND) == 30


async def submitted_at_both(
    one: World, two: World, bodies: Sequence[dict[str, str]]
) -> Counter[int | str]:
    """The codes of these submits, every second one at the HTTP server of the second engine, all
    under way at the same time."""
    async with gateway(one.engine) as first, gateway(two.engine) as second:
        key = await first.key(act_as=True, set_priority=True)
        async with first.client(key) as left, second.client(key) as right:
            answers = await asyncio.gather(
                *(
                    (left, right)[n % 2].post("/api/v1/jobs", json={"service": "work", **body})
                    for n, body in enumerate(bodies)
                )
            )
    return Counter(each.json().get("code", each.status_code) for each in answers)


async def test_two_hundred_submits_at_two_servers_are_exactly_twenty_pending_jobs(
    tmp_path: Path,
) -> None:
    """I13: over HTTP, at two engines on one database."""
    settings = catalog(tiers=Tiers([Tier("only", pending=20)]))
    async with worlds(tmp_path / "ledger.db", settings, settings) as (one, two):
        found = await submitted_at_both(one, two, [{"user_id": "ada"}] * 200)
        assert found == {202: 20, "too_many_pending": 180}
        assert await one.engine.count(State.QUEUED) == 20


async def test_two_hundred_submits_at_two_servers_are_exactly_twenty_of_an_hour(
    tmp_path: Path,
) -> None:
    """I13: over HTTP, at two engines on one database."""
    settings = catalog(tiers=Tiers([Tier("only", per_hour=20)]))
    async with worlds(tmp_path / "ledger.db", settings, settings) as (one, two):
        found = await submitted_at_both(one, two, [{"user_id": "ada"}] * 200)
        assert found == {202: 20, "too_many_this_hour": 180}


async def test_a_key_at_two_servers_names_exactly_twenty_of_two_hundred_users(
    tmp_path: Path,
) -> None:
    """S8: over HTTP, at two engines on one database."""
    settings = catalog(limits=Limits(users_per_key=20))
    async with worlds(tmp_path / "ledger.db", settings, settings) as (one, two):
        bodies = [{"user_id": f"user-{n}"} for n in range(200)]
        assert await submitted_at_both(one, two, bodies) == {202: 20, "too_many_users": 180}


async def test_a_user_that_one_process_counts_is_known_to_the_others(tmp_path: Path) -> None:
    """S8: a user takes one place, however many processes it submits to."""
    settings = catalog(limits=Limits(users_per_key=1))
    caller = Caller("acme", "key")
    async with worlds(tmp_path / "ledger.db", settings, settings) as (one, two):
        await one.submit(caller=caller, user="ada")
        await two.submit(caller=caller, user="ada")
        for world in (one, two):
            with pytest.raises(Refused):
                await world.submit(caller=caller, user="bob")


async def test_a_promotion_that_several_processes_found_is_announced_once(tmp_path: Path) -> None:
    """I36: all of them looked before any of them wrote."""
    plain = catalog()
    async with worlds(tmp_path / "ledger.db", *[plain] * 4) as every:
        job = await every[0].submit(tier="low")
        for world in every:
            world.clock.advance(700 * SECOND)
        now, names = every[0].clock.now(), plain.tiers.names
        found = [await core_of(world.engine).index.promotable(now, 10) for world in every]
        assert [[each for each, _ in several] for several in found] == [[job]] * 4
        written = await asyncio.gather(
            *(
                core_of(world.engine).ledger.promote([(job, "medium")], names, now)
                for world in every
            )
        )
        assert sorted(level is None for (level,) in written) == [False, True, True, True]
        events = await core_of(every[0].engine).ledger.events(job, 0)
        assert sum(event.type is EventType.JOB_PROMOTED for event in events) == 1


async def test_a_batch_of_three_is_three_whichever_process_the_worker_polls(tmp_path: Path) -> None:
    """policy: the worker says for how many tasks in a row it has its model."""
    settings = catalog(Service("work", affinity=Affinity.BATCH, fairness=Fairness.NONE))
    async with worlds(tmp_path / "ledger.db", settings, settings) as every:
        for model in ("music", "audio") * 9:
            await every[0].submit(model=model)
            for world in every:
                world.clock.advance(SECOND)
        doors = [WorkerService(world.engine) for world in every]
        worker = await doors[0].register(Offer(capacity=1), key="")
        with ThreadPoolExecutor(1) as threads:
            models, ran = Models(str.upper, threads), list[str]()
            for turn in range(9):
                door = doors[turn % 2]
                news = await door.poll(worker, PollAsk(1, wait=0, model=models.told()))
                (task,) = news.tasks
                await models.get(task.model)
                await door.report(worker, [Result(task.ref, "completed")])
                ran.append(task.model)
        assert [len([*batch]) for _, batch in groupby(ran)] == [3, 3, 3]
