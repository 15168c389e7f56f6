"""The order of service, seen from outside: random workloads, served in virtual time."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.index.index import Proposal
from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Fairness, Service, Shares
from fairlane.model.worker import Loaded, Worker
from fairlane.units import SECOND
from tests.unit.driver import HIGH, LOW, TIERS, fifo, job, plain, simulate, world
from tests.unit.fuzz import Fuzz

NO_CAPS = Shares(1000, 1000, 1000)
seeds = st.integers(0, 2**32)


def workload(seed: int, jobs: int, *, costs: tuple[float, ...] = (1, 2, 5, 9)) -> list[Entry]:
    """Arrivals over a while, sometimes almost at once, of three tiers and four users."""
    dice = random.Random(seed)
    gap = dice.choice([0.5, 2, 4])
    at, found = 0.0, []
    for n in range(jobs):
        at += dice.choice([0.000001, 0.000001, dice.expovariate(1 / gap)])
        found.append(
            job(
                f"j{n}",
                at=at,
                rank=dice.randrange(3),
                user=dice.choice("abcd"),
                cost=dice.choice(costs),
            )
        )
    return found


# --- levels --------------------------------------------------------------------------------------
class Watch:
    """Recomputes at every start what every waiting job counts as."""

    def __init__(self, arrivals: list[Entry], *, fair: bool) -> None:
        self.arrivals, self.fair = arrivals, fair
        self.gone: set[str] = set()
        self.last_start: dict[tuple[str, int], int] = {}

    def level(self, entry: Entry, now: int) -> int:
        since = entry.score
        if self.fair:
            since = max(since, self.last_start.get((entry.user, entry.rank), 0))
        passed = [to for to, at in TIERS.thresholds[entry.rank] if now - since >= at]
        return min([entry.rank, *passed])

    def waiting(self, now: int) -> list[Entry]:
        return [each for each in self.arrivals if each.score <= now and each.id not in self.gone]

    def __call__(self, picked: Proposal, now: int) -> None:
        entry = picked.entry
        assert self.level(entry, now) == min(self.level(each, now) for each in self.waiting(now))
        self.gone.add(entry.id)
        self.last_start[entry.user, entry.rank] = now


@pytest.mark.parametrize("fairness", Fairness)
@settings(max_examples=40)
@given(seed=seeds, slots=st.integers(1, 4))
def test_no_job_of_a_better_level_is_passed_over(fairness: Fairness, seed: int, slots: int) -> None:
    arrivals = workload(seed, 80)
    watch = Watch(arrivals, fair=fairness is Fairness.USER)
    run = simulate(world(plain(fairness=fairness, shares=NO_CAPS)), arrivals, slots, watch)
    assert len(run.order) == len(arrivals)


@pytest.mark.parametrize("fairness", Fairness)
@settings(max_examples=20)
@given(seed=seeds, slots=st.integers(1, 4))
def test_better_levels_are_passed_over_only_for_lack_of_aged_credit(
    fairness: Fairness, seed: int, slots: int
) -> None:
    """With the default share, who is passed over is aged, and who goes instead is better born than
    one of them."""
    arrivals = workload(seed, 80)
    watch = Watch(arrivals, fair=fairness is Fairness.USER)

    def look(picked: Proposal, now: int) -> None:
        entry = picked.entry
        level = watch.level(entry, now)
        passed = [each for each in watch.waiting(now) if watch.level(each, now) < level]
        assert all(watch.level(each, now) < each.rank for each in passed)
        assert not passed or any(entry.rank < each.rank for each in passed)
        watch.gone.add(entry.id)
        watch.last_start[entry.user, entry.rank] = now

    simulate(world(plain(fairness=fairness)), arrivals, slots, look)


@pytest.mark.parametrize("fairness", Fairness)
@settings(max_examples=25)
@given(seed=seeds, slots=st.integers(1, 4))
def test_no_slot_is_ever_idle_while_a_job_waits(fairness: Fairness, seed: int, slots: int) -> None:
    arrivals = workload(seed, 80)
    run = simulate(world(plain(fairness=fairness, limit=slots)), arrivals, slots)
    assert not run.idle_with_work
    assert len(run.order) == len(arrivals)


@settings(max_examples=40)
@given(seed=seeds)
def test_on_one_slot_no_wait_exceeds_first_come_first_served_by_more_than_patience_and_one_job(
    seed: int,
) -> None:
    """I17"""
    arrivals = workload(seed, 150)
    run = simulate(world(plain(fairness=Fairness.NONE, shares=NO_CAPS)), arrivals, 1)
    in_order, longest = fifo(arrivals, 1), max(each.cost for each in arrivals)
    for each in arrivals:
        limit = in_order[each.id] - each.score + TIERS.patience[each.rank] + longest
        assert run.wait(each) <= limit


@settings(max_examples=40)
@given(seed=seeds, slots=st.integers(2, 5), cost=st.sampled_from([1, 4, 20]))
def test_on_several_slots_with_equal_jobs_the_same_bound_holds(
    seed: int, slots: int, cost: int
) -> None:
    """I17"""
    arrivals = workload(seed, 150, costs=(cost,))
    run = simulate(world(plain(fairness=Fairness.NONE, shares=NO_CAPS)), arrivals, slots)
    in_order = fifo(arrivals, slots)
    for each in arrivals:
        assert run.started[each.id] <= in_order[each.id] + TIERS.patience[each.rank] + each.cost


# --- shares --------------------------------------------------------------------------------------
def test_each_class_keeps_its_share_while_all_wait() -> None:
    line = world(plain(), start=10_000)
    line.put(*[job(f"s{n}", band=Band.SKIP, user=f"s{n}") for n in range(1000)])
    line.put(*[job(f"f{n}", band=Band.FRONT, user=f"f{n}") for n in range(1000)])
    line.put(*[job(f"a{n}", rank=LOW, user=f"a{n}") for n in range(1000)])
    line.put(*[job(f"n{n}", at=10_000, rank=HIGH, user=f"n{n}") for n in range(1000)])
    picked = Counter(entry.id[0] for entry in line.served(1000))
    assert picked["s"] == pytest.approx(500, abs=8)
    assert picked["f"] == pytest.approx(100, abs=8)
    assert picked["a"] == pytest.approx(100, abs=8)
    assert picked["n"] >= 300 - 12


@pytest.mark.parametrize("band", [Band.SKIP, Band.FRONT])
def test_a_warm_model_does_not_lift_a_class_over_its_share(band: Band) -> None:
    """After R, work that has used up its share goes only if nothing else can, warm or not."""
    line = world(Service("s"), start=1000)
    line.put(*[job(f"w{n}", band=band, user=f"w{n}", model="warm") for n in range(400)])
    line.put(*[job(f"c{n}", at=1000, user=f"c{n}", model="cold") for n in range(400)])
    picked = Counter(
        line.served(1, loaded=Loaded("warm", since=0, streak=9))[0].model for _ in range(100)
    )
    allowed = 50 if band is Band.SKIP else 20
    assert picked["warm"] <= allowed + 4


def test_skips_are_served_in_order_of_payment() -> None:
    line = world(plain(shares=NO_CAPS), start=100)
    line.put(job("late", at=90, band=Band.SKIP, rank=HIGH), job("tier", at=1, rank=HIGH))
    line.put(job("early", at=80, band=Band.SKIP, rank=LOW), job("front", at=2, band=Band.FRONT))
    assert line.names(4) == ["early", "late", "front", "tier"]


# --- batches -------------------------------------------------------------------------------------
@settings(max_examples=100)
@given(seed=seeds)
def test_a_batch_picks_what_as_many_single_claims_pick(seed: int) -> None:
    batch, single = Fuzz(seed), Fuzz(seed)
    dice = random.Random(seed)
    for _ in range(60):
        event = dice.random()
        if event < 0.45:
            assert batch.arrive() == single.arrive()
        elif event < 0.5 and batch.waiting:
            gone = dice.choice([*batch.waiting])
            assert batch.cancel(gone) == single.cancel(gone)
        elif event < 0.65 and batch.driver.running:
            token = dice.choice([*batch.driver.running])
            for each in (batch, single):
                each.driver.finish(each.driver.running[token])
        elif event < 0.75:
            passed = dice.choice([0.1, 5, 40])
            for each in (batch, single):
                each.driver.pass_time(passed)
        else:
            which, n = dice.randrange(4), dice.randrange(1, 8)
            loaded = dice.choice([Loaded(), Loaded("m1", batch.driver.now - 30 * SECOND, 2)])
            together = batch.claim(n, batch.workers[which], loaded)
            assert together == one_by_one(single, single.workers[which], n, loaded)


def one_by_one(fuzz: Fuzz, worker: Worker, n: int, loaded: Loaded) -> list[Proposal]:
    found: list[Proposal] = []
    while len(found) < n and (picked := fuzz.claim(1, worker, loaded)):
        loaded = loaded.after(picked[0].entry.model, fuzz.driver.now)
        found += picked
    return found
