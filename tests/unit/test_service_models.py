"""A loaded model is kept as long as that helps, and no longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.job import Band
from fairlane.model.service import Affinity, Fairness, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.model.worker import Loaded
from tests.unit.driver import HIGH, LOW, MEDIUM, SECOND, at_once, job, plain, world

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
    at_once(line.index.learn_load("s", "c", SECOND // 100))
    assert line.names(loaded=Loaded("w", since=line.now)) == ["cold"]
