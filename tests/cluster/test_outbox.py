"""The outbox can be published by anybody, at any time, in any order, any number of times."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import asyncpg

from fairlane.engine.outbox_relay import publish_left_behind
from fairlane.model.attempt import Fault
from fairlane.model.lease import Lease
from fairlane.model.service import Service
from tests.cluster.conftest import THOROUGH, NewFleet
from tests.cluster.fleet import all_jobs, everything_ran_once
from tests.core import core_of
from tests.world import World, catalog

TIMES = 100 if THOROUGH else 10
SETTINGS = catalog(Service("work", limit=20, max_attempts=9))
KEEP = """
CREATE TABLE kept (jobs text[]);
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.kept VALUES (NEW.jobs); RETURN NEW; END $$;
CREATE TRIGGER keep AFTER INSERT ON fairlane.outbox FOR EACH ROW EXECUTE FUNCTION keep();
"""


async def test_rows_published_ten_times_in_any_order_change_nothing(new_fleet: NewFleet) -> None:
    """I24, I27: every row that was ever written, again, by two processes at once. Rows and slots of
    the ledger, positions and counts of the index stay what they were."""
    fleet = await new_fleet(SETTINGS)
    world = await fleet.world()
    database = await asyncpg.connect(fleet.database)
    await database.execute(KEEP)
    dice = random.Random(1)
    running = await a_life(world, dice)
    other = await fleet.opened()
    rows = [row["jobs"] for row in await database.fetch("SELECT jobs FROM kept")]
    assert len(rows) > 100
    await database.execute("DROP TRIGGER keep ON fairlane.outbox")
    before = await everything_known(world)
    again = rows * TIMES
    dice.shuffle(again)
    for at in range(0, len(again), 200):
        some = [(each,) for each in again[at : at + 200]]
        await database.executemany("INSERT INTO fairlane.outbox (jobs) VALUES ($1)", some)
        await asyncio.gather(other.ask("publish"), publish_left_behind(core_of(world.engine)))
    assert await database.fetchval("SELECT count(*) FROM fairlane.outbox") == 0
    await database.close()
    assert await everything_known(world) == before
    for lease in running:
        await world.engine.complete(lease)
    await world.drain()
    await everything_ran_once(world)


async def a_life(world: World, dice: random.Random) -> list[Lease]:
    """Jobs are submitted, run, fail, are skipped, cancelled and replayed. Those that still run."""
    await world.engine.add_credits("ann", 10_000, "gift")
    running: list[Lease] = []
    for _ in range(80):
        later = world.clock.now() + dice.choice([0, 0, 0, 100]) * 1_000_000
        job = await world.submit(tier=dice.choice(["high", "low"]), user="ann", run_at=later)
        match dice.randrange(6):
            case 0:
                await world.engine.skip(job)
            case 1:
                await world.engine.cancel(job)
            case 2 if running:
                await world.engine.fail(running.pop())
            case 3 if running:
                await world.engine.complete(running.pop())
            case 4 if running:
                await world.engine.give_back(running.pop())
            case 5 if running:
                await world.engine.fail(running[-1], Fault.INVALID_INPUT)
                await world.engine.replay(running.pop().job)
        running += await world.claim(1)
        world.clock.advance(dice.randrange(1_000_000))
    return running


async def everything_known(world: World) -> list[Any]:
    """Every row of a job, every slot, where everybody stands, and what the index counts."""
    core = core_of(world.engine)
    jobs = await all_jobs(world)
    stands = [await core.index.standing(job.id, core.now()) for job in jobs]
    return [jobs, stands, sorted(await core.ledger.slots()), await core.index.stats()]
