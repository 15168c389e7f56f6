"""Two engines on one PostgreSQL ledger, each with an index of its own: what one does at the same
moment as the other. Their indexes know the same jobs, so both propose everything."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from fairlane.errors import FairlaneError, Refused, StaleLease, WrongState
from fairlane.ledger.messages import (
    CountedUsers,
    Replayed,
    Request,
    Settled,
    SubmissionAccepted,
    Unconfirmed,
)
from fairlane.ledger.postgres.admin import CHANGES_LOCK
from fairlane.model.catalog import Limits
from fairlane.model.job import NewJob
from fairlane.model.lease import Lease, Slot
from fairlane.model.service import Service
from fairlane.model.state import Move, State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Worker
from fairlane.policy.quotas import Quota
from tests.cluster.beside import beside, two_worlds, until_waiting
from tests.core import core_of
from tests.ledger_items import confirmation, submission, with_cells
from tests.world import World, catalog

pytestmark = pytest.mark.usefixtures("on_postgres")


async def claims(*worlds: World, n: int = 100) -> list[Lease]:
    """What all of them get when they claim at once, each under an epoch that is current."""
    found = await asyncio.gather(
        *(world.engine.claim(Worker(f"w{i}"), n) for i, world in enumerate(worlds))
    )
    return [lease for leases in found for lease in leases]


async def know_the_same(one: World, two: World) -> None:
    """Both indexes are built from the ledger; the epoch of the second is the first one's too."""
    await two.engine.rebuild()
    core_of(one.engine).epoch = core_of(two.engine).epoch
    await core_of(one.engine).index.begin(core_of(one.engine).epoch)
    async for page in core_of(one.engine).ledger.live(1000):
        queued = [core_of(one.engine).entry(job) for job in page if job.state is State.QUEUED]
        await core_of(one.engine).index.load(core_of(one.engine).epoch, queued, [])
    await core_of(one.engine).index.open(core_of(one.engine).epoch, one.clock.now())


async def test_one_key_in_two_processes_is_one_job(tmp_path: Path) -> None:
    """I12: whoever is first makes the job, the other is told about it."""
    async with two_worlds(catalog(), tmp_path / "ledger.db") as worlds:
        for n in range(30):
            job = NewJob("work", idempotency_key=f"key {n}")
            outcomes = await asyncio.gather(*(world.engine.submit(job) for world in worlds))
            assert len({outcome.job for outcome in outcomes}) == 1
            assert {type(outcome) for outcome in outcomes} == {SubmissionAccepted, Replayed}
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
            assert sum(isinstance(outcome, SubmissionAccepted) for outcome in outcomes) == 5
            assert sum(isinstance(outcome, Refused) for outcome in outcomes) == 5


async def test_the_last_user_of_a_key_waits_for_a_count_under_way(tmp_path: Path) -> None:
    """S8: the second process decides after the first one's commit."""
    async with two_worlds(catalog(), tmp_path / "ledger.db") as worlds, beside(worlds[0]) as other:
        now = worlds[0].clock.now()
        async with other.transaction():
            await other.execute("SELECT pg_advisory_xact_lock_shared(hashtextextended('t/k', 8))")
            await other.execute(
                "INSERT INTO key_users VALUES ('t', 'k', 'first', 1, $1)", now + 1_000
            )
            counting = asyncio.create_task(
                core_of(worlds[0].engine).ledger.count_users("t", "k", ["second"], 1, now)
            )
            async with beside(worlds[0]) as watching:
                await until_waiting(watching, 1, counting)
        counted = await counting
        assert counted == CountedUsers({}, now + 1_000)


async def test_a_submit_that_runs_beside_itself_is_accepted_by_both(tmp_path: Path) -> None:
    """I6: both wait for the last place of their user, and need only one."""
    async with two_worlds(catalog(), tmp_path / "ledger.db") as worlds, beside(worlds[0]) as other:
        item = submission(worlds[0], user="ada", quota=Quota(pending=1))
        await other.execute("SELECT pg_advisory_lock(hashtextextended($1, 7))", item.who)
        submits = [
            asyncio.create_task(core_of(each.engine).ledger.submit([item])) for each in worlds
        ]
        await until_waiting(other, 2)
        await other.execute("SELECT pg_advisory_unlock_all()")
        for written in await asyncio.gather(*submits):
            assert written.outcomes == [SubmissionAccepted(item.id, item.common.tier)]
        assert await worlds[0].engine.count(State.QUEUED) == 1


async def test_a_fan_out_that_is_submitted_beside_itself_is_accepted_by_both(
    tmp_path: Path,
) -> None:
    """I6: nothing is counted, so both look for it and write it at the same moment."""
    async with (
        two_worlds(catalog(), tmp_path / "ledger.db") as worlds,
        beside(worlds[0]) as other,
        beside(worlds[0]) as watcher,
    ):
        item = with_cells(submission(worlds[0]), worlds[0], 2)
        async with other.transaction():
            await other.execute("LOCK TABLE jobs IN SHARE MODE")
            submits = [
                asyncio.create_task(core_of(each.engine).ledger.submit([item])) for each in worlds
            ]
            await until_waiting(watcher, 2)
        for written in await asyncio.gather(*submits):
            assert written.outcomes == [SubmissionAccepted(item.id, item.common.tier)]
        assert await worlds[0].engine.count(State.QUEUED) == 1


async def test_the_last_places_of_the_queue_are_counted_exactly(tmp_path: Path) -> None:
    """I13: the limit of the whole queue, under concurrent submits of many users."""
    settings = catalog(tiers=Tiers([Tier("only")]), limits=Limits(waiting=25))
    async with two_worlds(settings, tmp_path / "ledger.db") as worlds:
        found = await asyncio.gather(
            *(
                world.engine.submit_many([NewJob("work", user=f"user {n}")] * 3)
                for world in worlds
                for n in range(10)
            )
        )
        accepted = sum(
            isinstance(each, SubmissionAccepted) for outcomes in found for each in outcomes
        )
        assert accepted == 25
        assert await worlds[0].engine.count(State.QUEUED) == 25


async def test_the_last_place_of_the_queue_waits_for_a_submit_under_way(tmp_path: Path) -> None:
    """I13: whoever counts the queue near its limit counts alone until the commit."""
    settings = catalog(limits=Limits(waiting=1))
    async with World(settings, tmp_path / "ledger.db") as world, beside(world) as looking:
        first = NewJob("work", idempotency_key="key")
        async with beside(world) as other, other.transaction():
            await other.execute(HOLD_KEYS)
            slow = asyncio.create_task(world.engine.submit(first))
            await until_waiting(looking, 1)  # it has counted
            late = asyncio.create_task(world.engine.submit_many([NewJob("work")]))
            await until_waiting(looking, 2, unless=late)
        assert isinstance(await slow, SubmissionAccepted)
        assert isinstance((await late)[0], Refused)


HOLD_KEYS = "LOCK TABLE idempotency IN SHARE ROW EXCLUSIVE MODE"
"""Keys can be looked up, and none can be taken."""


async def test_the_database_itself_keeps_the_limits(tmp_path: Path) -> None:
    """I7, I11: whoever writes a slot, and whatever they have checked before."""
    settings = catalog(Service("work", limit=3))
    async with World(settings, tmp_path / "ledger.db") as world, beside(world) as other:
        await world.submit_all([NewJob("work")] * 3)
        leases = {lease.token: lease for lease in await world.claim(3)}
        slots = sorted(
            (row.slot.n, row.token) for row in await core_of(world.engine).ledger.slots()
        )
        await world.engine.change("services", "work", "limit", 2)
        await world.engine.complete(leases[slots[0][1]])
        for n in (1, 4):  # two are held, one of them above the limit
            with pytest.raises(asyncpg.CheckViolationError):
                await other.execute("INSERT INTO slots VALUES ('svc:work', $1, 't', 'j')", n)
        await world.engine.complete(leases[slots[2][1]])
        await other.execute("INSERT INTO slots VALUES ('svc:work', 1, 't', 'j')")


async def test_a_job_that_two_indexes_propose_is_granted_once(tmp_path: Path) -> None:
    """I3, I27: the row decides."""
    async with two_worlds(catalog(), tmp_path / "ledger.db") as (one, two):
        jobs = await one.submit_all([NewJob("work", n) for n in range(60)])
        await know_the_same(one, two)
        leases = await claims(one, two)
        leases += await claims(one, two)
        assert sorted(lease.job for lease in leases) == sorted(jobs)
        await one.healthy()


async def test_a_rebuild_waits_for_the_claims_under_way(tmp_path: Path) -> None:
    """I5, I26: what was confirmed under the old life is running before the new one is loaded."""
    async with World(catalog(), tmp_path / "ledger.db") as world, beside(world) as looking:
        ledger, job = core_of(world.engine).ledger, await world.submit()
        _, turn = await ledger.turn()
        async with beside(world) as other, other.transaction():
            await other.execute("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", job)
            claim = asyncio.create_task(ledger.confirm([confirmation(world, await world.job(job))]))
            await until_waiting(looking, 1)
            rebuild = asyncio.create_task(ledger.begin_rebuild("a new life", turn.number))
            await until_waiting(looking, 2, unless=rebuild)
            assert not rebuild.done()
        (granted,) = (await claim).outcomes
        assert isinstance(granted, Lease)
        assert await rebuild


async def test_of_two_that_want_to_rebuild_one_begins(tmp_path: Path) -> None:
    """I26: both have seen that nobody was at it; the second looks again. The first one, asked again
    after a lost answer, hears the same."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        ledger = core_of(world.engine).ledger
        _, turn = await ledger.turn()
        assert await ledger.begin_rebuild("one", turn.number)
        assert not await ledger.begin_rebuild("two", turn.number)
        assert await ledger.begin_rebuild("one", turn.number)
        stamp, turn = await ledger.turn()
        assert (stamp.life, turn.busy) == ("one", True)


async def test_two_indexes_never_exceed_a_limit(tmp_path: Path) -> None:
    """I7: both believe that all four slots are free."""
    async with two_worlds(catalog(Service("work", limit=4)), tmp_path / "ledger.db") as (one, two):
        await one.submit_all([NewJob("work", n) for n in range(40)])
        await know_the_same(one, two)
        for _ in range(5):
            leases = await claims(one, two, n=4)
            assert len(await core_of(one.engine).ledger.slots()) <= 4
            running = await one.engine.count(State.RUNNING)
            assert running == len(leases) <= 4
            for lease in leases:
                await one.engine.complete(lease)
                await core_of(two.engine).index.drop([lease.token], two.clock.now())
            await know_the_same(one, two)
        await one.healthy()


async def test_claims_wait_for_the_pools_of_a_batch_in_one_order(tmp_path: Path) -> None:
    """Two batches that name the same pools in other orders never wait for each other: who waits
    for the first holds no other."""
    settings = catalog(Service("apple", limit=1), Service("berry", limit=1))
    async with World(settings, tmp_path / "ledger.db") as world, beside(world) as other:
        jobs = [await world.submit("berry"), await world.submit("apple")]
        berry, apple = [
            confirmation(world, await world.job(job), [Slot(f"svc:{name}", n)])
            for job, name, n in zip(jobs, ("berry", "apple"), (1, 2), strict=True)
        ]
        lock = "SELECT pg_advisory_lock(hashtextextended($1, 9))"
        await other.execute(lock, "svc:apple")
        claim = asyncio.create_task(core_of(world.engine).ledger.confirm([berry, apple]))
        await until_waiting(other, 1)
        assert await other.fetchval(lock.replace("pg_", "pg_try_"), "svc:berry")
        await other.execute("SELECT pg_advisory_unlock_all()")
        granted, refused = (await claim).outcomes
        assert isinstance(granted, Lease)
        assert isinstance(refused, Unconfirmed)  # above the limit


async def test_a_pool_that_has_drained_is_claimed_from_at_once(tmp_path: Path) -> None:
    """A lowered limit makes claims count one by one, until nothing above it runs."""
    settings = catalog(Service("work", limit=3))
    async with World(settings, tmp_path / "ledger.db") as world, beside(world) as other:
        await world.submit_all([NewJob("work")] * 4)
        leases = await world.claim(3)
        await world.engine.change("services", "work", "limit", 1)
        await world.engine.sweep()
        assert not await world.claim(1)
        for lease in leases:
            await world.engine.complete(lease)
        await world.engine.sweep()
        await other.execute("SELECT pg_advisory_lock(hashtextextended($1, 9))", "svc:work")
        async with asyncio.timeout(10):  # nobody lets go
            await world.claim_one()
        await world.healthy()


async def test_a_limit_set_while_a_job_ends_leaves_no_slot_behind(tmp_path: Path) -> None:
    """I10: the limit counts the job as running, and its ending waits for the limit."""
    async with World(catalog(Service("work")), tmp_path / "ledger.db") as world:
        await world.submit()
        lease = await world.claim_one()
        async with beside(world) as other:
            await other.execute("SELECT pg_advisory_lock($1)", CHANGES_LOCK)
            change = asyncio.create_task(world.engine.change("services", "work", "limit", 1))
            await until_waiting(other, 1)  # its slots are written
            ending = asyncio.create_task(world.engine.complete(lease))
            await until_waiting(other, 2)
            await other.execute("SELECT pg_advisory_unlock_all()")
            await asyncio.gather(change, ending)
        assert not await core_of(world.engine).ledger.slots()
        await world.healthy()


async def test_a_slot_that_no_job_holds_is_found_by_the_sweep(tmp_path: Path) -> None:
    """I10: whatever left it behind. What runs keeps its slot."""
    settings = catalog(Service("work", limit=3))
    async with World(settings, tmp_path / "ledger.db") as world, beside(world) as other:
        await world.submit()
        lease = await world.claim_one()
        for n, job in ((2, lease.job), (3, "gone")):
            await other.execute("INSERT INTO slots VALUES ('svc:work', $1, $2, $2)", n, job)
        await world.engine.sweep()
        (slot,) = await core_of(world.engine).ledger.slots()
        assert slot.token == lease.token
        await world.healthy()


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


async def moved(world: World, move: str, request: Request) -> object:
    ledger = core_of(world.engine).ledger
    if move == "skip":
        return await ledger.skip(request, 5)
    if move == "cancel":
        return await ledger.cancel(request, frozenset())
    return await ledger.reopen(request, Move.REPLAY, None)


@pytest.mark.parametrize("move", ["skip", "cancel", "replay"])
async def test_moves_wait_for_a_job_without_holding_a_later_one(tmp_path: Path, move: str) -> None:
    """Somebody who claims has the first of two jobs and asks for the second: moves of both, in any
    order, must not have it, or each would wait for the other."""
    async with World(catalog(), tmp_path / "ledger.db") as world, beside(world) as other:
        await world.engine.add_credits("ada", 1000, "gift")
        first, second = await world.submit_all([NewJob("work", user="ada")] * 2)
        assert first < second
        async with other.transaction(), beside(world) as watching:
            await other.execute("SELECT id FROM jobs WHERE id = $1 FOR UPDATE", first)
            wanted = [Request(job, None, "op", world.clock.now()) for job in (second, first)]
            moving = asyncio.gather(*(moved(world, move, each) for each in wanted))
            await until_waiting(watching, 1)
            await other.execute("SELECT id FROM jobs WHERE id = $1 FOR UPDATE NOWAIT", second)
        await moving


async def test_a_value_that_cannot_be_sent_harms_only_its_own_call(tmp_path: Path) -> None:
    """A name that is no text shares a transaction with ten good requests."""
    async with World(catalog(), tmp_path / "ledger.db") as world:
        requests = [NewJob("work", user=f"user {n}") for n in range(10)]
        requests.insert(5, NewJob("work", user="half a \ud800 letter"))
        outcomes = await asyncio.gather(
            *(world.engine.submit(request) for request in requests), return_exceptions=True
        )
        assert isinstance(outcomes.pop(5), FairlaneError)
        assert all(isinstance(outcome, SubmissionAccepted) for outcome in outcomes), outcomes
