"""The index can be lost, stale or forged: it costs time, never a promise."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from fairlane.engine.rebuild import held
from fairlane.engine.reconciler import reconcile
from fairlane.errors import NotReady
from fairlane.index.index import Freed
from fairlane.ledger.messages import Confirmation, Unconfirmed
from fairlane.model.attempt import Fault
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band, NewJob
from fairlane.model.lease import Lease, Slot
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Fairness, Overrun, RetryPlace, Service, Shares
from fairlane.model.state import State
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Loaded, Worker
from fairlane.units import SECOND
from tests.conformance.acts import run_all, slots_match, states
from tests.core import core_of
from tests.ledger_items import confirmation
from tests.world import World, catalog

UNCAPPED = Shares(1000, 1000, 1000)
TIERS = ("high", "medium", "low")


def plain(**more: object) -> Service:
    return Service("work", fairness=Fairness.NONE, shares=UNCAPPED, **more)  # type: ignore[arg-type]


async def forged(world: World, job: str, **changes: object) -> Entry:
    """The job's true entry with something changed."""
    entry = core_of(world.engine).entry(await world.job(job))
    return entry._replace(**changes)  # type: ignore[arg-type]


# --- I26 -----------------------------------------------------------------------------------
async def random_life(world: World, dice: random.Random) -> list[str]:
    """Submits, claims, failures, skips and time: a queue in the middle of its work."""
    jobs: list[str] = []
    for _ in range(40):
        later = world.clock.now() + dice.choice([0, 0, 0, 400]) * SECOND
        jobs.append(await world.submit(tier=dice.choice(TIERS), user="ann", run_at=later))
        if dice.random() < 0.1 and (await world.job(jobs[-1])).state is State.QUEUED:
            await world.engine.skip(jobs[-1])
        if dice.random() < 0.3:
            for lease in await world.claim(1):
                if dice.random() < 0.5:
                    await world.engine.fail(lease)
                else:
                    await world.engine.complete(lease)
        world.clock.advance(dice.randrange(90 * SECOND))
    return jobs


@pytest.mark.parametrize("place", [RetryPlace.BACK, RetryPlace.FRONT])
@pytest.mark.parametrize("seed", range(2))
async def test_a_rebuilt_index_serves_in_the_same_order(
    tmp_path: Path, seed: int, place: RetryPlace
) -> None:
    """I26: fairness off: skips, front retries, aged, delayed and fresh jobs go on as before."""

    async def order(name: str, wipe: str) -> list[int]:
        dice = random.Random(seed)
        async with World(
            catalog(plain(max_attempts=9, retry_place=place)), tmp_path / name
        ) as world:
            await world.engine.add_credits("ann", 1000, "gift")
            jobs = await random_life(world, dice)
            world.clock.advance(60 * SECOND)
            if wipe == "rebuild":
                await world.engine.rebuild()
            elif wipe == "restart":
                await world.restart()
            granted = await run_all(world)
            world.clock.advance(400 * SECOND)
            granted += await run_all(world)
            await world.healthy()
            return [jobs.index(job) for job in granted]

    undisturbed = await order("kept", "")
    assert len(undisturbed) > 20
    assert await order("rebuilt", "rebuild") == undisturbed
    assert await order("restarted", "restart") == undisturbed


def limited() -> Catalog:
    tiers = Tiers([Tier("any", max_running_per_user=2)])
    return catalog(
        Service("slow", limit=3, overrun=Overrun.STRICT, fairness=Fairness.NONE),
        Service("quick", limit=2, rate=5, overrun=Overrun.FAST, fairness=Fairness.NONE),
        tiers=tiers,
    )


@pytest.mark.parametrize("seed", range(3))
async def test_a_rebuilt_index_has_the_ledgers_slots(tmp_path: Path, seed: int) -> None:
    """I26: running, kept, rate and per-user slots are the ledger's; no limit is exceeded after."""
    dice = random.Random(seed)
    async with World(limited(), tmp_path / "ledger.db") as world:
        for round_ in range(25):
            new = [
                NewJob(dice.choice(["slow", "quick"]), user=dice.choice("abc")) for _ in range(3)
            ]
            await world.submit_all(new)
            for lease in await world.claim(3):
                match dice.randrange(4):
                    case 0:
                        await world.engine.complete(lease)
                    case 1:
                        await world.engine.cancel(lease.job)
                    case 2:
                        await world.engine.fail(lease, closed=False)
                    case _:
                        pass
            await world.pass_time(dice.randrange(20))
            if round_ % 3 == 2:
                await world.engine.rebuild()
                await slots_match(world)
            await world.healthy()
        rows = await core_of(world.engine).ledger.slots()
        assert len({(row.slot.pool, row.slot.n) for row in rows}) == len(rows)


async def test_waiting_band_and_payment_are_restored(tmp_path: Path) -> None:
    """I26: position, effective tier and time waited are what they were."""
    async with World(catalog(plain()), tmp_path / "ledger.db") as world:
        await world.engine.add_credits("ann", 100, "gift")
        jobs = [await world.submit(tier=tier, user="ann") for tier in ("low", "medium", "low")]
        await world.pass_time(400)
        await world.engine.fail(await world.claim_one())
        await world.pass_time(300, sweeps=5)
        paid = []
        for _ in range(3):
            paid.append(await world.submit(tier="low", user="ann"))
            await world.pass_time(1)
        for job in reversed(paid):
            await world.engine.skip(job)
            await world.pass_time(1)
        jobs += paid
        await world.claim(1, Worker("elsewhere", services=frozenset({"other"})))
        before = [await world.engine.view(job) for job in jobs]
        await world.engine.rebuild()
        after = [await world.engine.view(job) for job in jobs]
        for old, new in zip(before, after, strict=True):
            assert (new.position, new.effective_tier, new.waited) == (
                old.position,
                old.effective_tier,
                old.waited,
            )
            assert new.next_promotion_at == old.next_promotion_at
        assert [(await world.claim_one()).job for _ in paid] == paid[::-1]


async def test_the_ageing_clock_of_a_user_is_restored(tmp_path: Path) -> None:
    """I26: a flood cannot age past others by losing the index: the user's last start still
    counts, and a job's own start does not."""
    for wipe in (False, True):
        async with World(catalog(Service("work")), tmp_path / f"{wipe}.db") as world:
            flood = [await world.submit(tier="low", user="flood") for _ in range(3)]
            await world.pass_time(500)
            await world.engine.complete(await world.claim_one())
            retried = await world.submit(tier="low", user="alone")
            await world.pass_time(500)
            if wipe:
                await world.engine.rebuild()
            assert (await world.engine.view(flood[1])).effective_tier == "low"
            await world.pass_time(100)
            assert (await world.engine.view(flood[1])).effective_tier == "medium"
            assert (await world.engine.view(retried)).effective_tier == "medium"
            medium = await world.submit(tier="medium", user="other")
            first, second, third = [(await world.claim_one()).job for _ in range(3)]
            assert {first, second} == {flood[1], retried}
            assert third == medium


async def test_submits_are_accepted_while_the_index_is_rebuilt(tmp_path: Path) -> None:
    """I26: claims pause, submits do not, cancels count; afterwards everything is in line once."""
    async with World(catalog(plain()), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        old = await world.submit_all([NewJob("work") for _ in range(50)])
        jobs = list(old)

        async def submit() -> None:
            jobs.extend([await world.submit() for _ in range(20)])

        async def cancel() -> None:
            for job in old[:20]:
                await world.engine.cancel(job)

        await asyncio.gather(world.engine.rebuild(), submit(), cancel(), world.engine.rebuild())
        assert core.ready.is_set()
        granted = await run_all(world)
        assert sorted(granted) == sorted(jobs[20:])
        await world.healthy()


async def test_what_ends_while_a_page_is_loaded_is_not_loaded(tmp_path: Path) -> None:
    """I26: an old page brings back neither a job that has left the line nor a slot that is free,
    and puts no job in line twice."""
    async with World(catalog(plain(limit=2)), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs = await world.submit_all([NewJob("work") for _ in range(4)])
        leases = await world.claim(2)
        waiting = [core.entry(await world.job(job)) for job in jobs[2:]]
        running = [held(core, await world.job(lease.job)) for lease in leases]
        slots = [(row.slot, row.token) for row in await core.ledger.slots()]
        await core.index.begin(core.epoch)
        await world.engine.complete(leases[0])
        await world.engine.cancel(jobs[2])
        late = await world.submit()
        await core.index.load_slots(core.epoch, slots)
        queued = [*waiting, core.entry(await world.job(late))]
        await core.index.load(core.epoch, queued, running)
        assert await core.index.open(core.epoch, core.now())
        assert await reconcile(core) == 0
        stats = await core.index.stats()
        assert (stats.held, [pool.held for pool in stats.pools]) == (1, [1])
        assert [(await world.claim_one()).job] == [jobs[3]]
        assert await world.claim() == []


async def test_a_loading_index_hands_out_nothing(tmp_path: Path) -> None:
    """I26: between begin and open a claim is refused and a submit is taken."""
    async with World(catalog(plain()), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        job = await world.submit()
        assert await core.ledger.begin_rebuild("next", (await core.ledger.turn())[1].number)
        await core.index.begin("next")
        core.epoch = "next"
        later = await world.submit()
        with pytest.raises(NotReady):
            await core.index.claim(Worker("w"), Loaded(), 1, core.now(), core.epoch)
        assert (await world.job(later)).state is State.QUEUED
        await world.engine.rebuild()
        assert await run_all(world) == [job, later]


async def test_a_claim_under_an_old_epoch_is_not_confirmed(tmp_path: Path) -> None:
    """I26: whoever proposes from a life of the index that is over gets nothing; the job runs."""
    async with World(catalog(plain()), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        job = await world.submit()
        late = confirmation(world, await world.job(job))
        assert await core.ledger.begin_rebuild("next", (await core.ledger.turn())[1].number)
        refused = await core.ledger.confirm([late])
        assert isinstance(refused.outcomes[0], Unconfirmed)
        assert (await world.job(job)).state is State.QUEUED
        await world.engine.rebuild()
        assert await run_all(world) == [job]


@pytest.mark.parametrize("seed", range(3))
async def test_work_goes_on_through_rebuilds(tmp_path: Path, seed: int) -> None:
    """I26: rebuilds beside claims and settles: every job runs once, no slot is lost."""
    dice = random.Random(seed)
    async with World(catalog(plain(limit=4)), tmp_path / "ledger.db") as world:
        jobs = await world.submit_all([NewJob("work") for _ in range(60)])
        granted: list[str] = []

        async def work(name: str) -> None:
            for lease in await world.engine.claim(Worker(name), 2):
                granted.append(lease.job)
                await world.engine.complete(lease)

        for _ in range(200):
            acts = [work(f"w{number}") for number in range(4)]
            if dice.random() < 0.5:
                acts.append(world.engine.rebuild())
            dice.shuffle(acts)
            await asyncio.gather(*acts)
            await world.pass_time(1)
            if len(granted) == len(jobs):
                break
        assert sorted(granted) == sorted(jobs)
        assert await core_of(world.engine).ledger.slots() == []
        await world.engine.rebuild()
        await slots_match(world)


async def test_a_sick_service_is_probed_after_a_rebuild_that_came_between(tmp_path: Path) -> None:
    """I26: a probe that was proposed under the old life of the index does not keep it closed."""
    async with World(catalog(plain(max_attempts=3)), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        await world.submit_all([NewJob("work") for _ in range(5)])
        for lease in await world.claim(3):
            await world.engine.fail(lease, Fault.UNAVAILABLE)
        await world.pass_time(1)
        picks = await core.index.claim(Worker("w"), Loaded(), 1, core.now(), core.epoch)
        assert len(picks.proposals) == 1
        await world.engine.rebuild()
        for _ in range(100):
            await world.pass_time(1)
            if leases := await world.claim():
                await world.engine.complete(leases[0])
                break
        assert not (await world.engine.overview()).stats.breakers


# --- I27 -----------------------------------------------------------------------------------
async def every_job_once(world: World, jobs: list[str]) -> None:
    """Each of these is granted exactly once, to whoever asks, within a minute."""
    granted: list[str] = []
    for _ in range(70):
        granted += await run_all(world, batch=3)
        await world.pass_time(1)
    assert sorted(granted) == sorted(jobs)
    assert await states(world, jobs) == {State.COMPLETED: len(jobs)}
    await world.healthy()


async def test_deleted_entries_come_back(tmp_path: Path) -> None:
    """I27: members deleted at random: reconcile finds them, and their place."""
    dice = random.Random(1)
    async with World(catalog(plain()), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs = [await world.submit() for _ in range(40)]
        deleted = dice.sample(jobs, 12)
        await core.index.take([(job, 1 << 62) for job in deleted])
        assert await reconcile(core) == 12
        assert await reconcile(core) == 0
        assert await run_all(world) == jobs


async def test_deleted_entries_come_back_by_themselves(tmp_path: Path) -> None:
    """I27: nobody has to ask: one reconcile period of sweeps is enough."""
    async with World(catalog(plain()), tmp_path / "ledger.db") as world:
        jobs = [await world.submit() for _ in range(10)]
        await core_of(world.engine).index.take([(job, 1 << 62) for job in jobs])
        assert await world.claim() == []
        await every_job_once(world, jobs)


async def test_an_entry_put_again_is_granted_once(tmp_path: Path) -> None:
    """I27: duplicates of waiting, running and finished jobs, at every rev: no double grant."""
    async with World(catalog(plain()), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs = [await world.submit() for _ in range(6)]
        entries = {job: await forged(world, job) for job in jobs}
        running, done = await world.claim(2)
        await world.engine.complete(done)
        for rev in range(1, 8):
            for job in jobs:
                await core.index.put([entries[job]._replace(rev=rev)], core.now())
            for _ in range(3):
                for lease in await world.claim(10, Worker(f"thief{rev}")):
                    assert lease.job not in {running.job, done.job}
                    jobs.remove(lease.job)
                    await world.engine.complete(lease)
        await world.engine.complete(running)
        assert set(jobs) == {running.job, done.job}
        await reconcile(core)
        assert await world.claim(10) == []
        await world.healthy()


FORGERIES: dict[str, dict[str, object]] = {
    "a better tier": {"rank": 0},
    "another user": {"user": "default:u:mallory"},
    "another lane of the service": {"lane": "work||gpu"},
    "another service": {"lane": "other||"},
    "the skip band": {"band": Band.SKIP, "score": 0},
    "an older place": {"score": 0},
    "no limit for its user": {"cap": 0},
}


def two_services() -> Catalog:
    tiers = Tiers([Tier("high"), Tier("low", max_running_per_user=5)])
    other = Service("other", fairness=Fairness.NONE)
    return catalog(plain(limit=2), other, tiers=tiers)


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("newer", [0, 1_000_000])
async def test_a_forged_entry_is_not_believed(tmp_path: Path, forgery: str, newer: int) -> None:
    """I27: whatever the index says about a job, it is granted once, as what the ledger says."""
    async with World(two_services(), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs = [await world.submit(tier="low", user="ann") for _ in range(4)]
        for job in jobs[1:3]:
            true = await forged(world, job)
            wrong = true._replace(rev=true.rev + newer, **FORGERIES[forgery])  # type: ignore[arg-type]
            await core.index.correct_entry(true, wrong, core.now())
        granted = []
        worker = Worker("w", capabilities=frozenset({"gpu"}))
        for _ in range(31):
            for lease in await world.claim(3, worker):
                assert (lease.tier, lease.user, lease.service) == ("low", "default:u:ann", "work")
                assert (await world.job(lease.job)).lane == "work||"
                granted.append(lease.job)
                rows = [row.slot.pool for row in await core.ledger.slots() if row.job == lease.job]
                assert sorted(rows) == ["svc:work", "user:default:u:ann"]
                await world.healthy()
                await world.engine.complete(lease)
            await world.pass_time(1)
        assert sorted(granted) == sorted(jobs)


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("newer", [0, 1_000_000])
async def test_reconcile_heals_a_forged_entry(tmp_path: Path, forgery: str, newer: int) -> None:
    """I27: drift is counted and gone after one pass: order and place are the ledger's again."""
    async with World(two_services(), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs = []
        for _ in range(4):
            jobs.append(await world.submit(tier="low", user="ann"))
            world.clock.advance(SECOND)
        for job in jobs[1:3]:
            true = await forged(world, job)
            wrong = true._replace(rev=true.rev + newer, **FORGERIES[forgery])  # type: ignore[arg-type]
            await core.index.correct_entry(true, wrong, core.now())
        assert await reconcile(core) == 2
        assert await reconcile(core) == 0
        assert await run_all(world, Worker("w", capabilities=frozenset({"gpu"}))) == jobs


async def test_a_job_is_not_granted_before_its_time_whatever_the_index_says(
    tmp_path: Path,
) -> None:
    """I27: a forged ready time is refused by the ledger, and healed."""
    async with World(catalog(plain()), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        job = await world.submit(run_at=world.clock.now() + 100 * SECOND)
        true = await forged(world, job)
        await core.index.correct_entry(true, true._replace(ready_at=0, score=0), core.now())
        assert await world.claim() == []
        world.clock.advance(100 * SECOND - 1)
        assert await world.claim() == []
        world.clock.advance(1)
        assert (await world.claim_one()).job == job


async def test_ghosts_are_never_granted_and_reconcile_removes_them(tmp_path: Path) -> None:
    """I27: entries of finished and of unknown jobs: present but not live is dropped."""
    async with World(catalog(plain()), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        done = await world.submit()
        ghost = await forged(world, done)
        await run_all(world)
        unknown = ghost._replace(id="018bcfe5-6800-7008-a65b-000000000000")
        await core.index.put([ghost._replace(rev=9), unknown], core.now())
        for _ in range(2):
            await reconcile(core)
        assert await core.index.standing(done, core.now()) is None
        assert await core.index.standing(unknown.id, core.now()) is None
        assert await world.claim(5) == []


@pytest.mark.parametrize("limit", [0, 1])
async def test_ghosts_in_front_do_not_keep_others_from_running(tmp_path: Path, limit: int) -> None:
    """I27: a claim that meets nothing but ghosts drops them; soon the living are served, with the
    slot that the ghosts had been offered."""
    async with World(catalog(plain(limit=limit)), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        old = await world.submit_all([NewJob("work", tier="high") for _ in range(8)])
        entries = [await forged(world, job) for job in old]
        await run_all(world)
        await core.index.put([entry._replace(rev=99) for entry in entries], core.now())
        job = await world.submit(tier="low")
        found: list[str] = []
        for _ in range(5):
            found += [lease.job for lease in await world.claim()]
        assert found == [job]


async def test_forged_slots_neither_exceed_a_limit_nor_lose_one(tmp_path: Path) -> None:
    """I27: slots the index believes free or taken against the ledger are put right."""
    async with World(catalog(plain(limit=2)), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs = await world.submit_all([NewJob("work") for _ in range(6)])
        running = await world.claim(2)
        await core.index.free([Freed(lease.token) for lease in running], core.now())
        for _ in range(5):
            assert await world.claim(6, Worker("thief")) == []
        await world.healthy()
        await slots_match(world)
        for lease in running:
            await world.engine.complete(lease)
        rows = [(Slot("svc:work", 1), "nobody"), (Slot("svc:work", 2), "no-one")]
        await core.index.load_slots(core.epoch, rows)
        assert await world.claim() == []
        assert await reconcile(core) == 2
        await slots_match(world)
        left = [job for job in jobs if (await world.job(job)).live]
        assert sorted(await run_all(world)) == sorted(left)


async def test_a_proposal_nobody_confirmed_is_back_in_line(tmp_path: Path) -> None:
    """I27: a claim that broke off between index and ledger: after five seconds the job and its
    slot are free, and a late confirm of it is refused while one that knows better is not."""
    async with World(catalog(plain(limit=1)), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        job = await world.submit()
        picks = await core.index.claim(Worker("gone"), Loaded(), 1, core.now(), core.epoch)
        (proposal,) = picks.proposals
        await world.pass_time(5)
        assert await world.claim() == []
        await world.pass_time(1)
        assert (await world.job(job)).rev > proposal.entry.rev
        entry = proposal.entry
        late = Confirmation(
            token=proposal.token,
            job=job,
            rev=entry.rev,
            lane=entry.lane,
            tier="medium",
            user=entry.user,
            slots=proposal.slots,
            pools=frozenset({"svc:work"}),
            cap=0,
            worker="gone",
            region=None,
            cost=entry.cost,
            lease=15 * SECOND,
            now=core.now(),
            epoch=core.stamp,
        )
        assert isinstance((await core.ledger.confirm([late])).outcomes[0], Unconfirmed)
        present = late._replace(rev=(await world.job(job)).rev, token="present")
        assert (await world.job(job)).state is State.QUEUED
        assert isinstance((await core.ledger.confirm([present])).outcomes[0], Lease)


async def test_a_job_whose_claim_broke_off_is_claimed_by_the_next(tmp_path: Path) -> None:
    """I27: the slot that the broken claim had taken in the index is free with it."""
    async with World(catalog(plain(limit=1)), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        job = await world.submit()
        await core.index.claim(Worker("gone"), Loaded(), 1, core.now(), core.epoch)
        await world.pass_time(6)
        assert (await world.claim_one()).job == job
        await slots_match(world)


@pytest.mark.parametrize("seed", range(4))
async def test_a_fuzzed_index_breaks_no_promise(tmp_path: Path, seed: int) -> None:
    """I27: delete, duplicate and forge at random beside real work: every job runs once, as what
    it is, within its limits, and the index heals."""
    dice = random.Random(seed)
    async with World(two_services(), tmp_path / "ledger.db") as world:
        core = core_of(world.engine)
        jobs: list[str] = []
        granted: list[str] = []
        old: list[Entry] = []

        async def vandalise() -> None:
            job = dice.choice(jobs)
            true = await forged(world, job)
            old.append(true)
            wrong = true._replace(
                rev=max(1, true.rev + dice.choice([-1, 0, 1, 100])),
                **FORGERIES[dice.choice(list(FORGERIES))],  # type: ignore[arg-type]
            )
            match dice.randrange(4):
                case 0:
                    await core.index.take([(job, 1 << 62)])
                case 1:
                    await core.index.put([wrong], core.now())
                case 2:
                    await core.index.correct_entry(true, wrong, core.now())
                case _:
                    await core.index.put([dice.choice(old)], core.now())

        for _ in range(60):
            name = dice.choice(["work", "other"])
            jobs.append(await world.submit(name, tier=dice.choice(["high", "low"]), user="ann"))
            for _ in range(dice.randrange(4)):
                await vandalise()
            for lease in await world.claim(2, Worker(f"w{dice.randrange(3)}")):
                job = await world.job(lease.job)
                assert (lease.tier, lease.service, lease.user) == (
                    job.tier,
                    job.lane.split("|")[0],
                    "default:u:ann",
                )
                granted.append(lease.job)
                await world.engine.complete(lease)
            await world.healthy()
            await world.pass_time(1)
        for _ in range(70):
            granted += await run_all(world, batch=3)
            await world.pass_time(1)
        assert sorted(granted) == sorted(jobs)
        assert await reconcile(core) == 0
