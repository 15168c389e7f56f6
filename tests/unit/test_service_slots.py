"""Slots: all or nothing, the last one reserved for who has waited too long, gates and pauses."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.index.index import Freed, ServiceCallRef
from fairlane.model.catalog import Catalog
from fairlane.model.service import Affinity, Fairness, Provider, Region, Service
from fairlane.model.worker import Worker
from fairlane.units import SECOND
from tests.unit.driver import LOW, TIERS, Driver, at_once, job, plain, world

ONE = [Provider("p", limit=1)]
TWO = [Provider("p", limit=2)]
ONLY_WIDE = Worker("only wide", services=frozenset({"wide"}))
ONLY_THIN = Worker("only thin", services=frozenset({"thin"}))
PATIENCE = TIERS.patience[LOW] // SECOND


# --- all or nothing ------------------------------------------------------------------------------
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_job_has_a_slot_in_every_pool_or_in_none_and_no_pool_is_overfull(seed: int) -> None:
    dice = random.Random(seed)
    regions = {"eu": Region("eu", 2), "us": Region("us", 1)}
    line = world(
        Service("a", limit=3, provider="p", regions=regions),
        plain("b", limit=2, provider="p"),
        plain("c", provider="p", rate=20),
        providers=[Provider("p", limit=4)],
    )
    limits = {"svc:a": 3, "svc:a@eu": 2, "svc:a@us": 1, "svc:b": 2, "prov:p": 4}
    numbers = count(1)
    for _ in range(80):
        line.put(job(f"j{next(numbers)}", service=dice.choice("abc"), user=dice.choice("xyz")))
        worker = Worker("w", region=dice.choice([None, "eu", "us"]))
        for each in line.claim(dice.randrange(1, 4), worker):
            needed = line.index.catalog.pools(each.entry.lane[0], worker.region)
            assert [slot.pool for slot in each.slots] == [pool.name for pool in needed]
        held = [slot[:2] for each in line.running.values() for slot in each.slots if not slot.until]
        assert len(held) == len(set(held))
        assert all(n <= limits[pool] for pool, n in held)
        shown = {use.pool: use.held for use in at_once(line.index.stats()).pools}
        assert {pool: shown[pool] for pool in limits} == {
            pool: sum(name == pool for name, _ in held) for pool in limits
        }
        if line.running and dice.random() < 0.6:
            line.finish(line.running[dice.choice([*line.running])])
        line.pass_time(1)


def test_a_rate_slot_is_free_again_when_its_minute_is_over_whatever_became_of_the_job() -> None:
    line = world(plain(rate=2))
    line.put(*[job(f"j{n}", at=n) for n in range(5)])
    for each in line.claim(5):
        line.finish(each)
    assert len(line.names(5)) == 0
    line.pass_time(59.9)
    assert line.names(5) == []
    line.pass_time(0.1)
    assert line.names(5) == ["j2", "j3"]


def test_a_rate_holds_after_a_proposal_was_refused() -> None:
    line = world(plain(rate=1))
    line.put(*[job(f"j{n}", at=n) for n in range(3)])
    (refused,) = line.claim()
    line.pass_time(1)
    line.drop(refused)
    line.pass_time(29)
    assert line.names() == ["j1"]
    line.pass_time(30)
    assert line.names() == []
    line.pass_time(30)
    assert line.names() == ["j2"]


def test_no_job_waits_behind_one_whose_pool_is_full() -> None:
    line = world(plain("full", limit=1), plain("free"))
    line.put(job("f0", service="full", rank=0), job("f1", service="full", rank=0))
    line.put(job("f2", service="free", rank=2))
    assert line.names(3) == ["f0", "f2"]


# --- the last slot -------------------------------------------------------------------------------
def stream_beside_a_wide_job(line: Driver, slots: int) -> float:
    """A stream of single-pool jobs that always asks first. When the two-pool job got through."""
    numbers = count(1)
    line.put(*[job(f"t{next(numbers)}", service="thin", rank=LOW) for _ in range(slots)])
    running = line.claim(slots, ONLY_THIN)
    line.put(job("wide", service="wide", rank=LOW, user="w"))
    for _ in range(40 * PATIENCE):
        name = f"t{next(numbers)}"
        line.put(job(name, at=line.now / SECOND, service="thin", rank=LOW, user=name))
        if len(running) == slots:
            line.finish(running.pop(0))
        running += line.claim(1, ONLY_THIN)
        if line.claim(1, ONLY_WIDE):
            return line.now / SECOND
        line.pass_time(1)
    raise AssertionError("it never got through")


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("fairness", Fairness)
def test_a_two_pool_job_past_four_times_its_patience_gets_through_a_stream_of_others(
    slots: int, fairness: Fairness
) -> None:
    services = (
        plain("wide", limit=1, provider="p", fairness=fairness),
        plain("thin", provider="p", fairness=fairness),
    )
    line = world(*services, providers=[Provider("p", limit=slots)])
    through = stream_beside_a_wide_job(line, slots)
    assert 4 * PATIENCE <= through <= 4 * PATIENCE + 5


def holding() -> Driver:
    """A wide job has just reserved the last slot."""
    line = world(plain("wide", limit=1, provider="p"), plain("thin", provider="p"), providers=TWO)
    line.put(job("wide", service="wide", rank=LOW, user="w"))
    line.pass_time(4 * PATIENCE)
    at = line.now / SECOND
    line.put(*[job(f"t{n}", at=at, service="thin", user=f"t{n}") for n in range(9)])
    assert len(line.names(2, ONLY_THIN)) == 2
    assert line.names(1, ONLY_WIDE) == []
    line.finish(next(iter(line.running.values())))
    assert line.names(1, ONLY_THIN) == []
    return line


def test_the_reserved_slot_goes_to_the_job_it_was_reserved_for() -> None:
    line = holding()
    assert line.names(1, ONLY_WIDE) == ["wide"]
    line.finish(next(iter(line.running.values())))
    assert len(line.names(1, ONLY_THIN)) == 1


def test_only_the_last_slot_is_reserved() -> None:
    line = holding()
    line.finish(next(iter(line.running.values())))
    assert len(line.names(2, ONLY_THIN)) == 1


def test_a_reservation_that_nobody_can_use_is_dropped() -> None:
    line = holding()
    line.pass_time(29)
    assert line.names(1, ONLY_THIN) == []
    line.pass_time(1)
    assert len(line.names(1, ONLY_THIN)) == 1


def test_a_reservation_ends_when_its_job_is_cancelled() -> None:
    line = holding()
    line.take(job("wide", service="wide", rank=LOW, user="w"))
    assert len(line.names(1, ONLY_THIN)) == 1


def test_a_reservation_ends_when_its_jobs_user_is_at_the_limit() -> None:
    line = world(
        plain("wide", limit=1, provider="p"),
        plain("thin", provider="p"),
        plain("else"),
        providers=ONE,
    )
    line.put(job("elsewhere", service="else", rank=LOW, user="w", cap=1))
    assert line.names() == ["elsewhere"]
    line.put(job("t0", service="thin", user="t0"))
    assert line.names() == ["t0"]
    line.put(job("wide", service="wide", rank=LOW, user="w", cap=1))
    line.pass_time(4 * PATIENCE)
    line.put(job("t1", at=line.now / SECOND, service="thin", user="t1"))
    assert line.names() == []
    line.finish(next(each for each in line.running.values() if each.entry.id == "t0"))
    assert line.names() == ["t1"]


def test_two_equally_old_jobs_do_not_take_the_reservation_from_each_other_for_ever() -> None:
    services = [plain(name, limit=1, provider="p") for name in ("one", "other")]
    line = world(*services, plain("thin", provider="p"), providers=ONE)
    line.put(job("thin", service="thin"))
    (thin,) = line.claim()
    line.put(*[job(name, service=name, rank=LOW, user=name) for name in ("one", "other")])
    line.pass_time(4 * PATIENCE)
    assert line.names() == []
    line.finish(thin)
    assert [entry.id for entry in line.served(2)] in (["one", "other"], ["other", "one"])


def test_nobody_reserves_before_four_times_its_patience() -> None:
    line = world(plain("wide", limit=1, provider="p"), plain("thin", provider="p"), providers=ONE)
    line.put(*[job(f"t{n}", service="thin", user=f"t{n}") for n in range(9)])
    line.put(job("wide", service="wide", rank=LOW, user="w"))
    (first,) = line.claim(1, ONLY_THIN)
    line.pass_time(4 * PATIENCE - 0.001)
    assert line.names(1, ONLY_WIDE) == []
    line.finish(first)
    assert len(line.names(1, ONLY_THIN)) == 1


# --- gates, pauses, lanes ------------------------------------------------------------------------
def test_a_closed_gate_lets_exactly_one_probe_through() -> None:
    line = world(plain(limit=50))
    line.put(*[job(f"j{n}", at=n) for n in range(20)])
    for each in line.claim(3):
        call = ServiceCallRef("s", None, each.token)
        at_once(line.index.unavailable(call, each.entry.id, line.now, 0))
        line.finish(each)
    assert line.names(5) == []
    line.pass_time(1)
    (probe,) = line.claim(5)
    assert line.names(5) == []
    at_once(line.index.unavailable(ServiceCallRef("s", None, probe.token), "x", line.now, 0))
    line.pass_time(1)
    assert line.names(5) == []
    line.pass_time(1)
    (probe,) = line.claim(5)
    line.finish(probe)
    (probe,) = line.claim(5)
    line.drop(probe)
    (probe,) = line.claim(5)
    at_once(line.index.free([Freed(probe.token, answered=("s", None))], line.now))
    assert len(line.names(5)) == 5


def test_a_sick_region_is_closed_alone() -> None:
    line = world(Service("s", regions={"eu": Region("eu"), "us": Region("us")}))
    line.put(*[job(f"j{n}", at=n) for n in range(20)])
    europe, america = Worker("e", region="eu"), Worker("u", region="us")
    for each in line.claim(3, europe):
        at_once(
            line.index.unavailable(
                ServiceCallRef("s", "eu", each.token), each.entry.id, line.now, 0
            )
        )
    assert line.names(5, europe) == []
    assert len(line.names(5, america)) == 5
    line.pass_time(1)
    assert len(line.names(5, europe)) == 1


def test_a_paused_service_hands_out_nothing_and_goes_on_where_it_was() -> None:
    line = world(plain(paused=True), plain("other"))
    line.put(job("j0"), job("j1", at=1), job("o", service="other", at=2))
    assert line.names(5) == ["o"]
    line.configure(Catalog(TIERS, [plain(), plain("other")]))
    assert line.names(5) == ["j0", "j1"]


@pytest.mark.parametrize("changed", [{"fairness": Fairness.NONE}, {"affinity": Affinity.NONE}])
def test_changed_rules_lose_no_waiting_job(changed: dict[str, object]) -> None:
    line = world(Service("s"))
    entries = [job(f"j{n}", at=n, user=f"u{n % 2}", model=f"m{n % 2}") for n in range(4)]
    line.put(*entries)
    line.configure(Catalog(TIERS, [Service("s", **changed)]))  # type: ignore[arg-type]
    line.take(entries[1])
    line.put(job("j9", at=9, user="u0", model="m0"))
    assert Counter(line.names(9)) == Counter(["j0", "j2", "j3", "j9"])


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_jobs_a_worker_cannot_run_never_stand_in_the_way_of_those_it_can(seed: int) -> None:
    dice = random.Random(seed)
    line = world(Service("s"), plain("t"))
    able = Worker("w", region="eu", capabilities=frozenset({"gpu"}))
    mine = 0
    for n in range(60):
        regions = dice.choice([(), ("eu",), ("us",), ("eu", "us")])
        needs = dice.choice([(), ("gpu",), ("huge",), ("gpu", "huge")])
        runs = "us" not in regions[:1] and "huge" not in needs
        mine += runs
        line.put(
            job(
                f"{'mine' if runs else 'not'}{n}",
                at=n,
                service=dice.choice("st"),
                rank=2 if runs else 0,
                user=dice.choice("ab"),
                model=dice.choice("mn"),
                regions=regions,
                capabilities=needs,
            )
        )
    line.pass_time(5000)
    picked = line.names(100, able)
    assert len(picked) == mine
    assert all(name.startswith("mine") for name in picked)


def test_a_worker_tied_to_a_tier_leaves_the_others_alone() -> None:
    line = world(plain())
    line.put(job("h", rank=0, user="a"), job("l", rank=LOW, user="b"))
    assert line.names(5, Worker("w", tiers=frozenset({"low"}))) == ["l"]


def test_a_delayed_job_is_out_of_line_until_its_time() -> None:
    line = world(plain())
    line.put(job("later", at=0, ready_at=10), job("now", at=5))
    picks = line.picks(5)
    assert [each.entry.id for each in picks.proposals] == ["now"]
    assert line.picks(5).look_again_at == 5 * SECOND
    line.pass_time(9)
    assert line.picks(5).look_again_at == 10 * SECOND
    line.pass_time(1)
    assert line.names(5) == ["later"]
