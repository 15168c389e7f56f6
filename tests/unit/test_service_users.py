"""Users share a tier fairly, and none of them can take it from the others."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.index.index import Freed, Proposal
from fairlane.model.job import Band
from fairlane.model.service import Fairness, Service, Shares
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Loaded, Worker
from fairlane.units import SECOND
from tests.unit.driver import HIGH, LOW, MEDIUM, at_once, job, plain, world

FLAT = Tiers([Tier("only")])
seeds = st.integers(0, 2**32)


@settings(max_examples=40)
@given(seed=seeds, slots=st.integers(1, 4), guess=st.sampled_from(["right", "wrong"]))
def test_always_backlogged_users_differ_by_at_most_two_largest_jobs(
    seed: int, slots: int, guess: str
) -> None:
    dice = random.Random(seed)
    line = world(plain(), tiers=FLAT)
    costs = {"a": dice.choice([1, 10]), "b": dice.choice([1, 3, 10]), "c": 2}
    numbers = count(1)

    def refill(user: str) -> None:
        cost = dice.uniform(0.1, costs[user])
        line.put(job(f"{user}{next(numbers)}", at=line.now / SECOND, rank=0, user=user, cost=cost))

    for user in [*costs, *costs]:
        refill(user)
    served: dict[str, float] = dict.fromkeys(costs, 0)
    running: list[Proposal] = []
    for _ in range(150):
        while len(running) < slots:
            (picked,) = line.claim()
            running.append(picked)
            refill(picked.entry.user)
        line.pass_time(0.5)
        ended = running.pop(dice.randrange(len(running)))
        actual = ended.entry.cost / SECOND
        if guess == "wrong":
            actual *= dice.choice([0.1, 0.5, 2])
        line.finish(ended, actual)
        served[ended.entry.user] += actual
        largest = 2 * max(costs.values()) if guess == "wrong" else max(costs.values())
        in_flight = slots - 1
        assert max(served.values()) - min(served.values()) <= (2 + in_flight) * largest


@settings(max_examples=30)
@given(seed=seeds)
def test_two_backlogged_users_are_charged_within_two_largest_jobs_of_each_other(seed: int) -> None:
    dice = random.Random(seed)
    line = world(plain(), tiers=FLAT)
    for n in range(300):
        line.put(job(f"a{n}", user="a", rank=0, cost=dice.uniform(0.1, 10)))
        line.put(job(f"b{n}", user="b", rank=0, cost=dice.uniform(0.1, 1)))
    given_out = {"a": 0, "b": 0}
    for entry in line.served(150):
        given_out[entry.user] += entry.cost
        assert abs(given_out["a"] - given_out["b"]) <= 2 * 10 * SECOND


@pytest.mark.parametrize("flooder", ["u:flood", "k:a key whose jobs name no user"])
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("rank", [HIGH, MEDIUM, LOW])
def test_a_flood_delays_another_users_single_job_by_at_most_one_service_time(
    flooder: str, slots: int, rank: int
) -> None:
    flood = [job(f"f{n}", at=n / 1000, rank=rank, user=flooder) for n in range(10_000)]
    single = job("single", at=500.5, rank=rank, user="u:other")
    line = world(plain())
    line.put(*flood)
    ends: list[tuple[int, Proposal]] = []
    while True:
        if line.now >= single.score and "single" not in line.index.waiting:
            line.put(single)
        while len(ends) < slots:
            (picked,) = line.claim()
            ends.append((line.now + SECOND, picked))
            if picked.entry.id == "single":
                assert line.now - single.score <= SECOND
                return
        line.now, ended = min(ends)
        ends.remove((line.now, ended))
        line.finish(ended)


def test_a_flood_cannot_age_past_another_users_better_tier() -> None:
    line = world(plain())
    line.put(*[job(f"f{n}", rank=LOW, user="flood") for n in range(1000)])
    line.pass_time(1000)
    paid = count(1)
    picked: Counter[str] = Counter()
    for _ in range(400):
        line.put(job(f"p{next(paid)}", at=line.now / SECOND, rank=HIGH, user="paid"))
        picked.update(entry.user for entry in line.served(1))
        line.pass_time(1)
    assert picked["paid"] >= 0.75 * 400


def test_a_user_is_served_oldest_first_whatever_models_the_jobs_need() -> None:
    line = world(Service("s"))
    models = ["z", "a", "m", "z", "a", "b"]
    line.put(*[job(f"j{n}", at=n, rank=HIGH, model=model) for n, model in enumerate(models)])
    line.pass_time(10)
    assert [entry.id for entry in line.served(6)] == [f"j{n}" for n in range(6)]


def test_a_user_is_served_oldest_first_whatever_lanes_the_jobs_stand_in() -> None:
    line = world(plain())
    needs = [("z",), ("a",), (), ("z",), ("a",), ()]
    line.put(*[job(f"j{n}", at=n, capabilities=each) for n, each in enumerate(needs)])
    line.pass_time(10)
    able = Worker("w", capabilities=frozenset("az"))
    assert [entry.id for entry in line.served(6, able)] == [f"j{n}" for n in range(6)]


def test_a_users_clock_is_kept_while_the_user_is_away() -> None:
    """A start counts against the user's other jobs even if it is over when they come back."""
    line = world(plain(), start=1000)
    line.put(job("first", at=1000, rank=LOW, user="a", cost=1))
    line.put(job("more", at=1000, rank=LOW, user="a", cost=1))
    line.put(job("b", at=1000, rank=LOW, user="b", cost=5))
    line.put(job("c", at=1000, rank=LOW, user="b", cost=5))
    assert [entry.id for entry in line.served(4)] == ["first", "b", "more", "c"]
    at_once(line.index.cleanup(line.now))
    line.put(job("retry", at=900, rank=LOW, user="a"), job("newer", at=990, rank=MEDIUM, user="c"))
    assert line.names() == ["newer"]


# --- at most so many running ---------------------------------------------------------------------
@pytest.mark.parametrize("fairness", Fairness)
@pytest.mark.parametrize("band", Band)
def test_a_user_at_the_limit_is_parked_and_comes_back_when_a_job_ends(
    fairness: Fairness, band: Band
) -> None:
    line = world(plain(fairness=fairness, shares=Shares(1000, 1000, 1000)))
    line.put(*[job(f"c{n}", at=n, user="c", cap=2, band=band) for n in range(5)])
    line.put(job("other", at=9, user="o"))
    picked = {each.entry.id: each for each in line.claim(5)}
    assert {*picked} == {"c0", "c1", "other"}
    assert line.names(5) == []
    line.finish(picked["other"])
    assert line.names(5) == []
    line.finish(picked["c1"])
    assert line.names(5) == ["c2"]
    line.drop(picked["c0"])
    assert line.names(5) == ["c3"]


@pytest.mark.parametrize("fairness", Fairness)
@given(seed=seeds)
@settings(max_examples=25)
def test_no_user_ever_runs_more_than_allowed_and_nobody_else_waits_for_it(
    fairness: Fairness, seed: int
) -> None:
    dice = random.Random(seed)
    line = world(Service("s", fairness=fairness), plain("t", fairness=fairness))
    caps = {"a": 1, "b": 2, "c": 3, "free": 0}
    numbers = count(1)
    waiting: Counter[str] = Counter()
    for _ in range(150):
        user = dice.choice([*caps])
        entry = job(
            f"j{next(numbers)}",
            at=line.now / SECOND,
            service=dice.choice("st"),
            rank=dice.randrange(3),
            user=user,
            model=dice.choice("mn"),
            cap=caps[user],
            band=dice.choice([*Band]),
        )
        line.put(entry)
        waiting[user] += 1
        waiting.subtract(each.entry.user for each in line.claim(dice.randrange(4)))
        if line.running and dice.random() < 0.5:
            line.finish(line.running[dice.choice([*line.running])])
        line.pass_time(dice.choice([0, 1, 30]))
        waiting.subtract(each.entry.user for each in line.claim(100))
        running = Counter(each.entry.user for each in line.running.values())
        for each, cap in caps.items():
            assert not cap or running[each] <= cap
            assert not waiting[each] or running[each] == cap


def test_a_user_whose_slot_was_kept_for_a_while_is_served_when_it_is_given_back() -> None:
    line = world(plain())
    line.put(job("first", user="c", cap=1), job("second", user="c", cap=1))
    (first,) = line.claim()
    at_once(line.index.free([Freed(first.token, None, first.slots)], line.now))
    assert line.names() == []
    at_once(line.index.free([Freed(first.token)], line.now))
    assert line.names() == ["second"]


def test_a_parked_job_can_be_cancelled() -> None:
    line = world(plain())
    entries = [job(f"c{n}", at=n, user="c", cap=1) for n in range(3)]
    line.put(*entries)
    (first,) = line.claim(3)
    line.take(entries[1])
    line.finish(first)
    (last,) = line.claim(3)
    assert last.entry.id == "c2"
    line.finish(last)
    line.put(entries[1]._replace(rev=2))
    assert line.names() == ["c1"]


# --- memory --------------------------------------------------------------------------------------
def grown_by(users: int, *, jobs_each: int) -> int:
    """Bytes still held after so many users have come, been served and left."""
    line = world(plain())
    numbers = count(1)

    def come_and_go(name: str) -> None:
        line.put(*[job(f"j{next(numbers)}", user=name) for _ in range(jobs_each)])
        line.pass_time(1)
        line.served(jobs_each)

    for n in range(50):
        come_and_go(f"before {n}")
    at_once(line.index.cleanup(line.now))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(users):
            come_and_go(f"user {n}")
        line.pass_time(4000)
        at_once(line.index.cleanup(line.now))
        gc.collect()  # also empties the interpreter's lists of tuples to use again
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("jobs_each", [1, 3])
def test_users_who_left_are_forgotten(jobs_each: int) -> None:
    assert grown_by(1500, jobs_each=jobs_each) < 1500 * 150


def test_users_who_left_a_line_that_never_empties_are_forgotten() -> None:
    """One model, always somebody waiting: nothing is kept of those who have been served."""
    line = world(Service("s"), tiers=FLAT)
    line.put(*[job(f"first{n}", rank=0, user=f"first{n}", model="m") for n in range(50)])
    loaded = Loaded("m")

    def come_and_go(users: range) -> int:
        for n in users:
            line.put(job(f"j{n}", rank=0, user=f"u{n}", model="m", cost=0.001))
            line.pass_time(1)
            line.served(1, loaded=loaded)
        at_once(line.index.cleanup(line.now))
        gc.collect()  # also empties the interpreter's lists of tuples to use again
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = come_and_go(range(300))
        assert come_and_go(range(300, 1500)) - before < 1200 * 150
    finally:
        tracemalloc.stop()


def test_jobs_put_and_taken_back_leave_nothing_behind() -> None:
    line = world(Service("s"))
    line.put(job("stays", user="first"))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for n in range(3000):
            entry = job(f"j{n}", at=1, user=f"u{n % 7}", model=f"m{n % 5}")
            line.put(entry)
            line.take(entry)
        at_once(line.index.cleanup(line.now))
        assert tracemalloc.get_traced_memory()[0] - before < 3000 * 150
    finally:
        tracemalloc.stop()
