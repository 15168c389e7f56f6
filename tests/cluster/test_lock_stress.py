"""Every verb at once, over the same few jobs, fan-outs, users and accounts, in every order that
chance has: nobody waits in a circle. The server counts the circles it had to break."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from fairlane.clock import seconds
from fairlane.errors import FairlaneError
from fairlane.ids import token
from fairlane.ledger.messages import PoolLimit, Settlement, Submission
from fairlane.model.job import Job, Progress
from fairlane.model.lease import Lease, Slot
from fairlane.model.service import Service
from fairlane.model.state import Move, State
from fairlane.model.worker import Worker, WorkerState
from fairlane.policy.quotas import Quota
from tests.cluster.beside import beside, two_worlds
from tests.cluster.conftest import THOROUGH
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

ROUNDS, CALLERS, CALLS = 6, 24, 10
USERS = ("ada", "bob", "cleo")
LIMIT = 6


pytestmark = pytest.mark.usefixtures("on_postgres")


async def circles(connection: asyncpg.Connection) -> int:
    """How many the server has broken in this database, when nobody else is there any more: a
    process of the server tells what it has counted when it ends."""
    while await connection.fetchval(OTHERS):
        pass
    found: int = await connection.fetchval(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    return found


OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Crowd:
    """Calls of all verbs, each over a few of the same things in an order of its own."""

    def __init__(self, worlds: tuple[World, ...], seed: int) -> None:
        self._worlds, self._chance = worlds, random.Random(seed)
        self._jobs: list[str] = []
        self._leases: list[Lease] = []
        self._number = 0

    async def begin(self) -> None:
        """A round's jobs: of all users, some in fan-outs, some with a slot to take."""
        world = self._worlds[0]
        items = [submission(world, name, user=user) for name in ("work", "few") for user in USERS]
        items += [with_cells(submission(world, user=user), world, 3) for user in USERS]
        await core_of(world.engine).ledger.submit(items)
        self._jobs = [each.id for item in items for each in (item, *item.cells)]
        self._leases = []

    async def call_often(self, calls: int) -> None:
        verbs: list[Callable[[World], Awaitable[object]]] = [
            *[self._confirm, self._confirm, self._settle, self._reopen] * 4,
            *[self._skip, self._credit] * 2,
            *(
                self._cancel,
                self._renew,
                self._progress,
                self._revoke,
                self._promote,
                self._give_up,
            ),
            *(self._forgive, self._submit, self._workers, self._tickets, self._limits, self._purge),
            *(self._retire, self._slots, self._count_users, self._forget_users),
        ]
        for _ in range(calls):
            verb, world = self._chance.choice(verbs), self._chance.choice(self._worlds)
            with suppress(FairlaneError, asyncpg.DeadlockDetectedError):  # the server counts these
                await verb(world)

    def _some(self, most: int = 5) -> list[str]:
        return self._chance.sample(self._jobs, self._chance.randint(1, most))

    async def _found(self, world: World) -> list[Job]:
        found = await core_of(world.engine).ledger.jobs(self._some())
        jobs = [job for job in found.values() if not job.fan_out]
        self._chance.shuffle(jobs)
        return jobs

    # --- claims and endings ------------------------------------------------------------------
    async def _confirm(self, world: World) -> None:
        jobs = [job for job in await self._found(world) if job.state is State.QUEUED]
        items = [confirmation(world, job, self._slots_for(job)) for job in jobs]
        found = await core_of(world.engine).ledger.confirm(items)
        self._leases += [each for each in found.outcomes if isinstance(each, Lease)]

    def _slots_for(self, job: Job) -> list[Slot]:
        return [Slot("svc:few", self._chance.randint(1, LIMIT))] if job.name == "few" else []

    def _held(self) -> list[Lease]:
        """Of the latest, so that some of them are still held."""
        latest = self._leases[-12:]
        return self._chance.sample(latest, min(len(latest), self._chance.randint(1, 6)))

    async def _settle(self, world: World) -> None:
        now = world.clock.now()
        endings: list[Callable[[Lease], Settlement]] = [
            lambda lease: completion(lease, now),
            lambda lease: failure(lease, now)._replace(move=Move.BURY),
            *[lambda lease: failure(lease, now)._replace(closed=False, strict=True)] * 3,
            *[lambda lease: retry(lease, now, now)._replace(give_up_at=now)] * 6,
        ]
        items = [self._chance.choice(endings)(lease) for lease in self._held()]
        await core_of(world.engine).ledger.settle(items)

    async def _renew(self, world: World) -> None:
        now = world.clock.now()
        held = [[(lease.job, lease.token) for lease in self._held()] for _ in range(3)]
        renewing = [
            core_of(world.engine).ledger.renew(each, now + seconds(15), now) for each in held
        ]
        await asyncio.gather(*renewing)

    async def _progress(self, world: World) -> None:
        told = Progress(0.5, "", world.clock.now())
        reports = [
            core_of(world.engine).ledger.progress(lease.job, lease.token, told)
            for lease in self._held()
        ]
        await asyncio.gather(*reports)

    # --- moves from outside ------------------------------------------------------------------
    async def _at_once(self, calls: list[Awaitable[object]]) -> None:
        """They share a transaction."""
        await asyncio.gather(*calls)

    async def _cancel(self, world: World) -> None:
        cancel = core_of(world.engine).ledger.cancel
        await self._at_once([cancel(request(world, job), frozenset()) for job in self._some(3)])

    async def _reopen(self, world: World) -> None:
        reopen, quota = core_of(world.engine).ledger.reopen, Quota(pending=50, waiting=100)
        calls = [
            reopen(request(world, job), move, quota if move is Move.RESUME else None)
            for job in self._some()
            for move in (self._chance.choice([Move.RESUME, Move.REPLAY]),)
        ]
        await self._at_once(list(calls))

    async def _skip(self, world: World) -> None:
        skip = core_of(world.engine).ledger.skip
        await self._at_once([skip(request(world, job), 1) for job in self._some()])

    async def _credit(self, world: World) -> None:
        """New accounts as well as old ones, into and out of them."""
        credit, now = core_of(world.engine).ledger.credit, world.clock.now()
        self._number += 1
        users = [*USERS, f"new {self._number // 4}", f"newer {self._number // 4}"]
        self._chance.shuffle(users)
        await self._at_once([credit("default", user, 5, token(), now, "", "") for user in users])

    async def _submit(self, world: World) -> None:
        """Counted users, some of them with a fan-out; the queue is near its limit."""
        quota = Quota(pending=500, waiting=1000)
        items: list[Submission] = []
        for user in self._chance.sample(USERS, 2):
            item = submission(world, user=user, quota=quota, idempotency=self._key())
            items.append(with_cells(item, world, 2) if self._chance.random() < 0.5 else item)
        await core_of(world.engine).ledger.submit(items)

    def _key(self) -> tuple[str, str, str]:
        return ("scope", f"key {self._chance.randrange(40)}", "hash")

    # --- upkeep ------------------------------------------------------------------------------
    async def _revoke(self, world: World) -> None:
        jobs = await self._found(world)
        await core_of(world.engine).ledger.revoke([(job.id, job.rev, token()) for job in jobs])

    async def _promote(self, world: World) -> None:
        order = core_of(world.engine).catalog.tiers.names
        levels = [(job, self._chance.choice(order)) for job in self._some()]
        await core_of(world.engine).ledger.promote(levels, order, world.clock.now())

    async def _give_up(self, world: World) -> None:
        await core_of(world.engine).ledger.give_up(world.clock.now(), 3)

    async def _forgive(self, world: World) -> None:
        await core_of(world.engine).ledger.return_attempts([(job, 0, 1) for job in self._some()])

    async def _slots(self, world: World) -> None:
        await core_of(world.engine).ledger.free_slots(world.clock.now() + seconds(3600), 5)

    async def _workers(self, world: World) -> None:
        ledger, now, names = core_of(world.engine).ledger, world.clock.now(), ["w1", "w2", "w3"]
        self._chance.shuffle(names)
        await self._at_once([ledger.put_worker(Worker(name), now) for name in names])
        self._chance.shuffle(names)
        await self._at_once(
            [ledger.record_heartbeat(name, WorkerState.ACTIVE, now) for name in names]
        )
        await ledger.forget_workers(now + self._chance.randint(0, 1))

    async def _tickets(self, world: World) -> None:
        now = world.clock.now()
        names = [f"ticket {self._number // 3 + n}" for n in range(3)]
        self._chance.shuffle(names)
        redeem = core_of(world.engine).ledger.keys.redeem
        await self._at_once(
            [redeem(name, now + self._chance.randint(-1, 1), now) for name in names]
        )

    async def _limits(self, world: World) -> None:
        """Two pools that count what runs, one of them by another name each time."""
        ledger = core_of(world.engine).ledger
        settings = await ledger.settings()
        few = PoolLimit("svc:few", LIMIT, ("few",), None)
        other = PoolLimit(f"svc:work {self._chance.randint(1, 3)}", 100, ("work",), None)
        pools = self._chance.sample([few, other], 2)
        await ledger.set_pools(pools, settings.catalog, settings.file, settings.stamp.settings)
        for each in self._worlds:
            core_of(each.engine).settings = (await ledger.settings()).stamp.settings

    async def _purge(self, world: World) -> None:
        purge, now = core_of(world.engine).ledger.purge, world.clock.now()
        await self._at_once([purge("default", self._some(), now, "") for _ in range(2)])

    async def _retire(self, world: World) -> None:
        now = world.clock.now()
        await core_of(world.engine).ledger.retire(now, now, 0, 3)

    async def _count_users(self, world: World) -> None:
        count, now = core_of(world.engine).ledger.count_users, world.clock.now()
        users, back = list(USERS), now - seconds(self._chance.choice((0, 3600)))
        self._chance.shuffle(users)
        keys = self._chance.sample(("a", "b", "c"), 2)
        await self._at_once([count("default", key, users, 2, back) for key in keys])

    async def _forget_users(self, world: World) -> None:
        await core_of(world.engine).ledger.forget_key_users(world.clock.now())


@pytest.mark.parametrize("seed", range(10 if THOROUGH else 1))
async def test_no_two_verbs_wait_for_each_other(tmp_path: Path, seed: int) -> None:
    settings = catalog(Service("work"), Service("few", limit=LIMIT))
    async with World(settings, tmp_path / "ledger.db") as world, beside(world) as connection:
        name = await connection.fetchval("SELECT current_database()")
        # a circle is broken sooner than by default, not less often
        await connection.execute(f'ALTER DATABASE "{name}" SET deadlock_timeout = 50')
    async with beside(world) as connection:
        before = await circles(connection)
        async with two_worlds(settings, tmp_path / "ledger.db") as worlds:
            core_of(worlds[0].engine).epoch = core_of(worlds[1].engine).epoch
            crowd = Crowd(worlds, seed)
            for _ in range(ROUNDS):
                await crowd.begin()
                await asyncio.gather(*(crowd.call_often(CALLS) for _ in range(CALLERS)))
            await worlds[0].healthy()
        assert await circles(connection) == before
