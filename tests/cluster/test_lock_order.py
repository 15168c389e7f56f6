"""The order of locks (docs/decisions/0005-postgres.md), verb by verb: somebody holds the first of
several things that a verb wants, the verb waits, and the others can still be had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fairlane.ledger.ledger import Ledger
from fairlane.ledger.messages import Unconfirmed
from fairlane.ledger.postgres.credits import CREDITS_LOCK
from fairlane.model.lease import Lease, Slot
from fairlane.model.service import Provider, Service, user_pool
from fairlane.model.state import Move, State
from fairlane.model.tier import Tier, Tiers
from fairlane.policy.quotas import Quota
from tests.cluster.beside import beside, until_waiting
from tests.cluster.fleet import LONG_ENOUGH
from tests.core import core_of
from tests.ledger_items import (
    completion,
    confirmation,
    failure,
    request,
    retry,
    submission,
    with_cells,
)
from tests.world import World, catalog

pytestmark = pytest.mark.usefixtures("on_postgres")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(catalog(), tmp_path / "ledger.db") as world:
        yield world


def ledger(world: World) -> Ledger:
    return core_of(world.engine).ledger


@asynccontextmanager
async def waiting(
    world: World, call: Coroutine[Any, Any, object], wanted: str, *values: object
) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else has done this in a transaction, and the call waits for it. When the block ends
    it is undone, and the call ends as well."""
    async with beside(world) as other, beside(world) as watching:
        holding = other.transaction()
        await holding.start()
        await other.execute(wanted, *values)
        task = asyncio.create_task(call)
        await until_waiting(watching, 1)
        try:
            yield other
        finally:
            await holding.rollback()
            await task


TAKE = "SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE NOWAIT"
TAKE_LINE = "SELECT 1 FROM line FOR UPDATE NOWAIT"
TAKE_KEY = "SELECT pg_advisory_xact_lock(hashtextextended($1, 8))"
TRY_KEY = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 8))"
TAKE_USER = "SELECT pg_advisory_xact_lock(hashtextextended('default:u:' || $1, 7))"


async def at_once(*calls: Awaitable[object]) -> None:
    """They share a transaction."""
    await asyncio.gather(*calls)


async def two_jobs(world: World) -> list[str]:
    items = [submission(world, user=user) for user in ("bob", "ada")]
    await ledger(world).submit(items)
    return [item.id for item in items]


async def two_fan_outs(world: World) -> list[tuple[str, list[str]]]:
    """(parent, cells) of each."""
    items = [with_cells(submission(world, user="ada"), world, 2) for _ in range(2)]
    await ledger(world).submit(items)
    return [(item.id, [cell.id for cell in item.cells]) for item in items]


async def leases(world: World, *jobs: str) -> list[Lease]:
    items = [confirmation(world, await world.job(job)) for job in jobs]
    found = (await ledger(world).confirm(items)).outcomes
    return [lease for lease in found if isinstance(lease, Lease)]


# --- jobs ----------------------------------------------------------------------------------------
async def test_endings_of_all_kinds_wait_for_a_job_without_holding_a_later_one(
    world: World,
) -> None:
    """A result, a failure and a retry are three statements over one batch."""
    first, *later = [*await two_jobs(world), *await two_jobs(world)]
    one, two, three, four = await leases(world, first, *later)
    now = world.clock.now()
    items = [completion(four, now), retry(three, now, now), failure(two, now), failure(one, now)]
    async with waiting(world, ledger(world).settle(items), TAKE, first) as other:
        for job in later:
            await other.execute(TAKE, job)


async def test_renewals_wait_for_a_job_without_holding_a_later_one(world: World) -> None:
    first, second = await two_jobs(world)
    now = world.clock.now()
    renewals = [
        ledger(world).renew([(lease.job, lease.token)], now + 1, now)
        for lease in await leases(world, second, first)
    ]
    async with waiting(world, at_once(*renewals), TAKE, first) as other:
        await other.execute(TAKE, second)


async def test_fan_outs_that_are_submitted_wait_for_a_job_without_holding_a_later_one(
    world: World,
) -> None:
    """The first was submitted before, and its answer lost; now it is beside itself."""
    one, two = (with_cells(submission(world), world, 2) for _ in range(2))
    submit = ledger(world).submit([two, one])
    async with waiting(world, submit, INSERT, one.id) as other:
        await other.execute("SET LOCAL lock_timeout = 1")
        for each in (*one.cells, two, *two.cells):
            await other.execute(INSERT, each.id)


async def test_jobs_that_are_submitted_wait_for_a_job_without_holding_the_line(
    world: World,
) -> None:
    """Also in one statement: the others count while so many are written."""
    one, two = (submission(world) for _ in range(2))
    async with waiting(world, ledger(world).submit([one, two]), INSERT, two.id) as other:
        await other.execute(TAKE_LINE)


INSERT = """
INSERT INTO jobs (id, tenant, key, name, plan, tier, level, created_at, lane, ready_at, timeout)
VALUES ($1, '', '', '', '', '', '', 0, '', 0, 0)
"""


# --- fan-outs ------------------------------------------------------------------------------------
async def test_cancelled_cells_wait_for_a_parent_without_holding_another(world: World) -> None:
    (first, one), (second, two) = await two_fan_outs(world)
    cancels = [ledger(world).cancel(request(world, cell), frozenset()) for cell in (two[0], one[0])]
    async with waiting(world, at_once(*cancels), TAKE, first) as other:
        await other.execute(TAKE, second)


async def test_cancelled_fan_outs_wait_for_a_cell_without_holding_a_parent(world: World) -> None:
    """Whoever ends a cell holds it and asks for its parent."""
    (first, _), (second, two) = await two_fan_outs(world)
    cancels = [ledger(world).cancel(request(world, job), frozenset()) for job in (first, second)]
    async with waiting(world, at_once(*cancels), TAKE, two[0]) as other:
        await other.execute(TAKE, first)
        await other.execute(TAKE, second)


async def test_a_replayed_cell_waits_for_another_cell_without_holding_a_parent(
    world: World,
) -> None:
    (first, one), (_, two) = await two_fan_outs(world)
    now = world.clock.now()
    await ledger(world).settle([failure(each, now) for each in await leases(world, one[0], two[0])])
    replays = [
        ledger(world).reopen(request(world, cell), Move.REPLAY, None) for cell in (one[0], two[0])
    ]
    async with waiting(world, at_once(*replays), TAKE, two[0]) as other:
        await other.execute(TAKE, first)


async def test_claimed_cells_wait_for_a_parent_without_holding_another_or_the_line(
    world: World,
) -> None:
    (first, one), (second, two) = await two_fan_outs(world)
    items = [confirmation(world, await world.job(cell)) for cell in (*two, *one)]
    async with waiting(world, ledger(world).confirm(items), TAKE, first) as other:
        await other.execute(TAKE, second)
        await other.execute(TAKE_LINE)


# --- users ---------------------------------------------------------------------------------------
async def test_counts_of_users_wait_for_a_key_without_holding_another(world: World) -> None:
    """Of two keys that are counted together, the second is free while the first is waited for."""
    count, now = ledger(world).count_users, world.clock.now()
    calls = at_once(*(count("t", key, ["ada"], 1, now) for key in ("b", "a")))
    async with waiting(world, calls, TAKE_KEY, "t/a") as other:
        taken = await other.fetchval(TRY_KEY, "t/b")
        assert taken, "the lock of the second key is held"


async def test_a_sweep_of_counted_users_waits_for_nobody(world: World) -> None:
    """Decision 22: it skips a user that is being counted again."""
    now = world.clock.now()
    await ledger(world).count_users("t", "a", ["ada", "bob"], 2, now)
    async with beside(world) as other, other.transaction():
        await other.execute("SELECT 1 FROM key_users WHERE username = 'ada' FOR UPDATE")
        sweep = ledger(world).forget_key_users(now + 3_600_000_000)
        await asyncio.wait_for(sweep, LONG_ENOUGH)
        left = await other.fetch("SELECT username FROM key_users")
        assert [row[0] for row in left] == ["ada"]


async def test_resumes_wait_for_a_user_without_holding_another(world: World) -> None:
    """Submits count users in the order of their names."""
    jobs, now = await two_jobs(world), world.clock.now()
    await ledger(world).settle([failure(lease, now) for lease in await leases(world, *jobs)])
    resumes = [
        ledger(world).reopen(request(world, job), Move.RESUME, Quota(pending=9)) for job in jobs
    ]
    async with waiting(world, at_once(*resumes), TAKE_USER, "ada") as other:
        await other.execute("SET LOCAL lock_timeout = 1")
        await other.execute(TAKE_USER, "bob")
        for job in jobs:
            await other.execute(TAKE, job)


# --- credits -------------------------------------------------------------------------------------
async def paid_cell(world: World) -> tuple[str, str]:
    """(parent, cell): a skip that will be paid back if the cell fails."""
    await world.engine.add_credits("ada", 100, "gift")
    (parent, (cell, *_)), *_ = await two_fan_outs(world)
    await ledger(world).skip(request(world, cell), 5)
    return parent, cell


@pytest.mark.parametrize("how", ["fails", "waits too long", "is cancelled"])
async def test_a_refund_waits_for_a_parent_without_holding_credits(world: World, how: str) -> None:
    parent, cell = await paid_cell(world)
    now = world.clock.now()
    if how == "fails":
        (lease,) = await leases(world, cell)
        ending: Any = ledger(world).settle([failure(lease, now)])
    elif how == "waits too long":
        async with beside(world) as other:
            await other.execute("UPDATE jobs SET give_up_at = $2 WHERE id = $1", cell, now)
        ending = ledger(world).give_up(now, 5)
    else:
        ending = ledger(world).cancel(request(world, cell), frozenset())
    async with waiting(world, ending, TAKE, parent) as other, beside(world) as watching:
        gift = asyncio.create_task(world.engine.add_credits("ada", 1, "another"))
        await until_waiting(watching, 2, unless=gift)
        assert gift.done()
        await other.execute(TAKE_LINE)
    assert await world.engine.balance("ada") == 101


async def test_who_waits_to_move_credits_has_opened_no_account(world: World) -> None:
    """Two that open the same accounts in opposite order would wait for each other."""
    job, _ = await two_jobs(world)
    now = world.clock.now()
    gifts = [ledger(world).credit("default", user, 5, "op", now, "", "") for user in ("new", "ada")]
    calls = at_once(*gifts, ledger(world).skip(request(world, job), 5))
    async with waiting(world, calls, ALONE, CREDITS_LOCK) as other, beside(world) as watching:
        await until_waiting(watching, 2)
        await other.execute("SET LOCAL lock_timeout = 1")
        for name in ("house:mint", "house:skips", "user:default/ada", "user:default/new"):
            await other.execute("INSERT INTO accounts VALUES ($1, 0)", name)
    assert await world.engine.balance("ada") == 5


ALONE = "SELECT pg_advisory_xact_lock($1)"


async def test_a_claim_that_goes_on_one_by_one_waits_for_no_number(tmp_path: Path) -> None:
    """Somebody else takes the same numbers of two pools the other way round."""
    work = Service("work", limit=3, provider="p")
    tiers = Tiers([Tier("only", max_running_per_user=9)])
    settings = catalog(work, providers=[Provider("p", limit=3)], tiers=tiers)
    async with World(settings, tmp_path / "ledger.db") as world, beside(world) as other:
        proposals = []
        for user, a, b in (("ann", 1, 2), ("bob", 2, 1), ("cid", 9, 9)):  # nobody has a ninth
            job = await world.job(await world.submit(user=user))
            proposal = confirmation(world, job)
            own = user_pool(proposal.user)
            slots = (Slot("prov:p", a), Slot("svc:work", b), Slot(own, 1))
            pools = proposal.pools | {own}
            proposals.append(proposal._replace(slots=slots, pools=pools, cap=9))
        async with other.transaction():
            await other.execute("INSERT INTO slots VALUES ('prov:p', 2, 'other', 'other')")
            confirmed = core_of(world.engine).ledger.confirm(proposals)
            written = await asyncio.wait_for(confirmed, LONG_ENOUGH)
            await other.execute("INSERT INTO slots VALUES ('svc:work', 1, 'other', 'other')")
            kinds = [type(outcome) for outcome in written.outcomes]
            assert kinds == [Lease, Unconfirmed, Unconfirmed]
            await other.execute("DELETE FROM slots WHERE token = 'other'")


async def test_cells_of_a_fan_out_that_is_being_reopened_are_kept(tmp_path: Path) -> None:
    """I30: whoever reopens it has it locked, and nobody waits for anybody."""
    settings = catalog(Service("work", max_attempts=1))
    async with World(settings, tmp_path / "ledger.db") as world, beside(world) as other:
        parent = await world.submit(matrix={"model": ("a", "b")})
        done, dead = await world.claim(2)
        await world.engine.complete(done)
        await world.engine.fail(dead)
        assert (await world.job(parent)).state is State.FAILED
        now, ledger = world.clock.now(), core_of(world.engine).ledger
        async with other.transaction():
            await other.execute("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", parent)
            await asyncio.wait_for(ledger.retire(now, 0, 0, 100), LONG_ENOUGH)
            assert done.job in await ledger.jobs([done.job])
        await ledger.retire(now, 0, 0, 100)
        assert done.job not in await ledger.jobs([done.job])
