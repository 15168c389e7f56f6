"""A loaded model is kept as long as that helps, and no longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.index.index import ModelSample
from fairlane.model.job import Band
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Affinity, Fairness, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Loaded
from fairlane.units import SECOND
from tests.unit.driver import HIGH, LOW, MEDIUM, at_once, job, plain, world

R = 3.5 * 92 / 8


@given(st.floats(0, R - 0.01), st.sampled_from([HIGH, MEDIUM, LOW]))
def test_before_r_the_loaded_model_is_kept(on_it: float, rank: int) -> None:
    line = world(Service("s"), start=500)
    line.put(job("cold", at=0, rank=rank, model="c", user="x"))
    line.put(job("warm", at=500, rank=LOW, model="w", user="y"))
    loaded = Loaded("w", since=line.now - round(on_it * SECOND), streak=50)
    assert line.names(loaded=loaded) == ["warm"]


@given(st.floats(0, R - 0.01))
def test_before_r_only_a_paid_skip_changes_the_model(on_it: float) -> None:
    line = world(Service("s"), start=500)
    line.put(job("cold", at=499, band=Band.SKIP, model="c", user="x"))
    line.put(job("warm", at=500, rank=HIGH, model="w", user="y"))
    loaded = Loaded("w", since=line.now - round(on_it * SECOND), streak=50)
    assert line.names(loaded=loaded) == ["cold"]


@given(st.floats(R, 10_000), st.sampled_from([(HIGH, MEDIUM), (HIGH, LOW), (MEDIUM, LOW)]))
def test_after_r_a_better_tier_never_waits_behind_warm_worse_work(
    on_it: float, ranks: tuple[int, int]
) -> None:
    better, worse = ranks
    line = world(Service("s"), start=20_000)
    line.put(*[job(f"w{n}", at=20_000, rank=worse, model="w", user=f"y{n}") for n in range(5)])
    line.put(job("cold", at=20_000, rank=better, model="c", user="x"))
    loaded = Loaded("w", since=line.now - round(on_it * SECOND), streak=50)
    assert line.names(loaded=loaded) == ["cold"]


@given(st.integers(0, 60))
def test_after_r_equals_wait_while_they_have_slack_and_no_longer(waited: int) -> None:
    tiers = Tiers([Tier("high"), Tier("low", {"high": 60})])
    line = world(Service("s", fairness=Fairness.NONE), tiers=tiers, start=1000)
    line.put(job("cold", at=1000 - waited, model="c", cost=5))
    line.put(job("warm", at=1000, model="w", cost=5))
    kept = line.names(loaded=Loaded("w", since=0)) == ["warm"]
    assert kept == (60 - waited - 3.5 > 5)


def test_a_job_without_a_model_does_not_unload_one() -> None:
    line = world(Service("s"), plain("plain"), start=500)
    line.put(job("plain", service="plain", at=400, rank=HIGH, user="x"))
    line.put(job("cold", at=450, rank=MEDIUM, model="c", user="y"))
    line.put(job("warm", at=500, rank=LOW, model="w", user="z"))
    loaded = Loaded("w", since=line.now - SECOND, streak=1)
    assert line.names(2, loaded=loaded) == ["plain", "warm"]


def test_in_batches_of_three_a_model_serves_three_then_the_next() -> None:
    line = world(Service("s", affinity=Affinity.BATCH, fairness=Fairness.NONE))
    jobs = [("m", 1), ("m", 2), ("n", 0), ("n", 3), ("m", 4), ("m", 5), ("n", 6)]
    line.put(*[job(f"{model}{at}", at=at, model=model) for model, at in jobs])
    line.pass_time(10)
    assert line.names(7) == ["n0", "n3", "n6", "m1", "m2", "m4", "m5"]


def test_what_a_load_takes_is_learnt() -> None:
    line = world(Service("s"), start=500)
    line.put(job("cold", at=400, rank=HIGH, model="c", user="x"))
    line.put(job("warm", at=500, rank=LOW, model="w", user="y"))
    at_once(line.index.learn_times([ModelSample("s", "c", SECOND // 100)]))
    assert line.names(loaded=Loaded("w", since=line.now)) == ["cold"]


# --- which model to load ---------------------------------------------------------------------
def crowd(model: str, n: int, **more: object) -> list[Entry]:
    """As many users, each with one job."""
    users = [f"{model}{each}" for each in range(n)]
    return [job(user, at=500, model=model, user=user, **more) for user in users]  # type: ignore[arg-type]


def test_the_model_that_most_users_wait_for_is_loaded() -> None:
    line = world(Service("s"), start=500)
    line.put(*crowd("a", 1), *crowd("b", 3), *crowd("c", 2))
    assert line.names() == ["b0"]


def test_who_floods_one_model_gains_nothing() -> None:
    line = world(Service("s"), start=500)
    line.put(*[job(f"f{n}", at=500, model="f", user="flood") for n in range(9)], *crowd("b", 2))
    assert line.names() == ["b0"]


def test_as_many_users_for_each_model_are_served_in_turn() -> None:
    line = world(Service("s"), start=500)
    line.put(*crowd("z", 2), *crowd("a", 2))
    assert line.names() == ["z0"]


def test_nobody_waits_for_ever_for_later_work_of_their_own() -> None:
    """Each start sets their clock anew, so that the first job never is overdue."""
    tiers = Tiers([Tier("one", {"one": 60})])
    line = world(Service("s"), tiers=tiers, start=500)
    line.put(job("first", at=500, rank=0, model="a", user="b0"))
    started = []
    for n in range(9):
        line.put(
            *[job(f"{n}-{u}", at=500 + 10 * n, rank=0, model="b", user=f"b{u}") for u in (0, 1)]
        )
        started += line.names()
        line.pass_time(10)
    assert "first" in started


def test_workers_that_load_at_the_same_time_share_the_models() -> None:
    """Four wait for b, then three over two workers; two for a; two for c."""
    line = world(Service("s"), start=500)
    line.put(*crowd("a", 2), *crowd("b", 4), *crowd("c", 2))
    assert [line.names()[0] for _ in range(4)] == ["b0", "a0", "c0", "b1"]


@given(st.floats(0.01, 30))
def test_who_has_loaded_a_model_for_long_is_not_counted(ago: float) -> None:
    line = world(Service("s"), tiers=Tiers([Tier("one", {"one": 9000})]), start=500)
    line.put(*crowd("c", 1, rank=0), *crowd("a", 5, rank=0))
    assert line.names(2) == ["a0", "a1"]
    line.put(*crowd("b", 2, rank=0))
    line.pass_time(R + ago)
    assert line.names() == ["a2"]


def test_who_is_overdue_does_not_wait_for_a_crowd() -> None:
    line = world(Service("s"), start=500)
    line.put(job("old", at=460, model="a", user="x"), *crowd("b", 5))
    assert line.names() == ["old"]


def test_where_nobody_ages_nobody_waits_for_a_crowd() -> None:
    line = world(Service("s"), start=500)
    line.put(*crowd("a", 1, rank=HIGH), *crowd("b", 5, rank=HIGH))
    assert line.names() == ["a0"]


def test_a_crowd_in_a_worse_tier_does_not_count() -> None:
    line = world(Service("s"), start=500)
    line.put(*crowd("a", 1, rank=MEDIUM), *crowd("b", 5, rank=LOW))
    assert line.names() == ["a0"]


def test_users_who_may_run_no_more_do_not_count() -> None:
    line = world(Service("s"), start=500)
    more = [
        job(f"{user}+", at=500, model="b", user=user, cap=1)
        for user in ("b0", "b1", "b2", "b3", "b4", "b5")
    ]
    line.put(*crowd("b", 6, cap=1), *more)
    assert len(line.names(9)) == 6  # it has looked for more: all of them are parked
    line.put(*crowd("a", 1), *crowd("c", 2))
    assert line.names() == ["c0"]


def test_first_come_first_served_is_not_changed_by_models() -> None:
    line = world(Service("s", fairness=Fairness.NONE), start=500)
    line.put(*crowd("a", 1), *crowd("b", 5))
    assert [line.names()[0] for _ in range(2)] == ["a0", "b0"]


def test_loads_that_cost_next_to_nothing_do_not_change_the_order() -> None:
    line = world(Service("s"), start=500)
    line.put(*crowd("a", 1, cost=80), *crowd("b", 5, cost=80))
    assert line.names() == ["a0"]


def test_of_very_many_models_that_of_whoever_is_up_is_loaded() -> None:
    line = world(Service("s"), start=500)
    line.put(*[job(f"o{n}", at=500, model=f"m{n}", user=f"u{n}") for n in range(255)])
    line.put(*crowd("b", 9))
    assert line.names() == ["b0"]
    line.put(*[job(f"late{n}", at=500, model=f"late{n}", user=f"late{n}") for n in range(9)])
    assert line.names() == ["o0"]
