"""Each slot of a called service remembers the model it ran last, and a job takes the slot that
suits it best."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlane.index.index import Freed, Proposal
from fairlane.model.catalog import Catalog
from fairlane.model.job import Band
from fairlane.model.lease import Slot, service_slot
from fairlane.model.service import Affinity, Executor, Fairness, Region, Service
from fairlane.model.worker import Loaded, Worker
from fairlane.units import SECOND
from tests.unit.driver import HIGH, LOW, TIERS, WORKER, Driver, at_once, job, world


def called(limit: int = 2, **more: Any) -> Service:
    settings: dict[str, Any] = {"executor": Executor.HTTP, "fairness": Fairness.NONE}
    return Service("s", limit=limit, **settings | more)


def starts(line: Driver, n: int = 1, worker: Worker = WORKER) -> list[tuple[str, int]]:
    """The next n jobs, and their slots."""
    return [(each.entry.id, service_slot(each.slots)) for each in line.claim(n, worker)]


def answer(line: Driver, proposal: Proposal, *, answered: bool = True) -> None:
    del line.running[proposal.token]
    by = ("s", None) if answered else None
    at_once(line.index.free([Freed(proposal.token, SECOND, (), by)], line.now))


def ran(line: Driver, *models: str) -> None:
    """One slot after the other runs a job of these models."""
    line.put(*[job(f"{model}-first", model=model, at=n) for n, model in enumerate(models)])
    line.pass_time(len(models))
    for each in line.claim(len(models)):
        answer(line, each)


def models(line: Driver) -> dict[int, str]:
    return {each.n: each.loaded.model for each in at_once(line.index.models("s", None, 9)).slots}


# --- which slot ----------------------------------------------------------------------------------
def test_a_job_takes_the_slot_that_has_its_model() -> None:
    line = world(called())
    ran(line, "a", "b")
    assert models(line) == {1: "a", 2: "b"}
    line.put(job("b2", model="b", at=9))
    assert starts(line) == [("b2", 2)]


def test_a_job_whose_model_no_slot_has_takes_an_empty_slot() -> None:
    line = world(called(3))
    ran(line, "a")
    line.put(job("b1", model="b", at=9), job("c1", model="c", at=10))
    assert starts(line, 2) == [("b1", 2), ("c1", 3)]


def test_if_no_slot_is_empty_the_model_that_was_loaded_first_goes() -> None:
    line = world(called())
    ran(line, "b")
    line.pass_time(100)
    ran(line, "a")
    assert models(line) == {1: "b", 2: "a"}
    line.pass_time(100)
    line.put(job("c1", model="c", at=200))
    assert starts(line) == [("c1", 1)]


def test_a_paid_skip_takes_the_slot_that_has_its_model() -> None:
    line = world(called())
    ran(line, "a", "b")
    line.put(job("skip", model="b", at=9, band=Band.SKIP))
    assert starts(line) == [("skip", 2)]


def test_a_job_without_a_model_takes_the_lowest_slot_and_unloads_nothing() -> None:
    line = world(called())
    ran(line, "a", "b")
    line.put(job("plain", at=9))
    (proposal,) = line.claim()
    assert service_slot(proposal.slots) == 1
    answer(line, proposal, answered=False)
    assert models(line) == {1: "a", 2: "b"}


def test_two_slots_keep_two_models_and_load_each_once() -> None:
    """The order of arrival alternates: one slot would load ten times."""
    line = world(called())
    line.put(*[job(f"j{n}", model="ab"[n % 2], at=n) for n in range(10)])
    line.pass_time(10)
    for _ in range(5):
        for each in line.claim(2):
            answer(line, each)
    times = at_once(line.index.models("s", None, 9)).times
    assert {each.model: each.loads for each in times} == {"a": 1, "b": 1}


# --- when it is forgotten ------------------------------------------------------------------------
def test_a_slot_whose_call_was_not_answered_is_cold() -> None:
    """policy: the process behind it is probably a new one."""
    line = world(called())
    ran(line, "a", "b")
    line.put(job("a2", model="a", at=9))
    (proposal,) = line.claim()
    answer(line, proposal, answered=False)
    assert models(line) == {2: "b"}


def test_a_slot_whose_proposal_was_refused_is_cold() -> None:
    line = world(called())
    line.put(job("a1", model="a"))
    (proposal,) = line.claim()
    assert models(line) == {1: "a"}
    line.drop(proposal)
    assert models(line) == {}


def test_a_kept_slot_is_cold_when_it_is_free_again() -> None:
    line = world(called(1))
    line.put(job("a1", model="a"))
    (proposal,) = line.claim()
    kept = (Slot("svc:s", 1, line.now + 10 * SECOND),)
    at_once(line.index.free([Freed(proposal.token, None, kept)], line.now))
    assert models(line) == {}


def test_a_lowered_limit_leaves_no_slot_above_it() -> None:
    line = world(called(3))
    ran(line, "a", "b", "c")
    line.configure(Catalog(TIERS, [called(2)]))
    line.put(job("c2", model="c", at=9))
    assert starts(line) == [("c2", 1)]


# --- the rule of affinity ------------------------------------------------------------------------
@given(
    st.sampled_from([Affinity.RESIDENCY, Affinity.BATCH]),
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([HIGH, LOW]), st.integers(0, 50)),
        min_size=1,
        max_size=12,
    ),
)
def test_one_slot_keeps_its_model_like_one_worker(
    rule: Affinity, arrivals: list[tuple[str, int, int]]
) -> None:
    order = []
    for service in (called(1, affinity=rule), called(1, affinity=rule, executor=Executor.PULL)):
        line, loaded, found = world(service), Loaded(), list[str]()
        for n, (model, rank, at) in enumerate(arrivals):
            line.put(job(f"j{n}", model=model, rank=rank, at=at, cost=4))
        line.pass_time(50)
        for _ in arrivals:
            (proposal,) = line.claim(1, loaded=loaded)
            if service.executor is Executor.PULL:
                loaded = loaded.after(proposal.entry.model, line.now)
            line.pass_time(4)
            answer(line, proposal)
            found.append(proposal.entry.id)
        order.append(found)
    assert order[0] == order[1]


def test_each_slot_counts_its_own_batch() -> None:
    line = world(called(2, affinity=Affinity.BATCH))
    line.put(*[job(f"{model}{n}", model=model, at=n) for n in range(9) for model in "abc"])
    line.pass_time(20)
    ran_in: dict[int, str] = {1: "", 2: ""}
    for _ in range(4):
        for each in line.claim(2):
            ran_in[service_slot(each.slots)] += each.entry.model
            answer(line, each)
    assert ran_in == {1: "aaac", 2: "bbbc"}


def test_the_slots_of_a_region_with_a_limit_are_its_own() -> None:
    service = called(4, regions={"eu": Region("eu", 2)})
    line = world(service)
    worker = Worker("w", region="eu")
    line.put(job("a1", model="a"), job("b1", model="b", at=1))
    line.pass_time(2)
    (first, second) = line.claim(2, worker)
    assert [service_slot(each.slots) for each in (first, second)] == [1, 2]
    assert {each.pool for each in at_once(line.index.models("s", None, 9)).slots} == {"svc:s@eu"}


def test_services_without_slots_or_with_very_many_remember_nothing() -> None:
    for service in (called(0), called(257), called(2, affinity=Affinity.NONE)):
        line = world(service)
        ran(line, "a")
        assert models(line) == {}


def test_the_assumed_load_time_is_a_setting() -> None:
    for seconds, first in ((0.01, "cold"), (9, "warm")):
        line = world(called(1, model_load=seconds))
        ran(line, "w")
        line.put(job("cold", at=2, model="c"), job("warm", at=3, rank=LOW, model="w"))
        line.pass_time(5)
        assert line.names() == [first]
