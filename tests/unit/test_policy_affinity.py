"""When a worker keeps the model it has loaded."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.service import Affinity
from fairlane.model.worker import Loaded
from fairlane.policy.affinity import Pick, most_wanted, residency, stays
from fairlane.units import SECOND

PATIENCE = 1000 * SECOND
CHEAP = Pick(1, PATIENCE, 0, 4 * SECOND, SECOND, single_slot=False)
"""Loads in 4 s, so R = 46 s."""

R = 46 * SECOND
LOADED = Loaded("m", since=0, streak=1)

spans = st.integers(0, 10**10)
picks = st.builds(
    Pick, st.integers(0, 4), spans, spans, spans, st.integers(1, 10**10), st.booleans()
)


def stays_at(now: int, pick: Pick = CHEAP, warm_rank: int = 1) -> bool:
    return stays(Affinity.RESIDENCY, 3, LOADED, pick, warm_rank, now)


@given(picks)
def test_residency_keeps_loading_within_its_share_of_the_time(pick: Pick) -> None:
    stay = residency(pick._replace(single_slot=False))
    assert pick.load * 1000 <= 80 * (stay + pick.load) + 1000


@given(picks)
def test_where_one_slot_serves_all_a_model_stays_no_longer_than_the_next_job_has_patience(
    pick: Pick,
) -> None:
    alone = residency(pick._replace(single_slot=True))
    assert alone == min(residency(pick._replace(single_slot=False)), pick.patience)


@given(st.integers(0, R - 1), st.integers(0, 4), st.integers(-1, 4), spans)
def test_before_r_the_loaded_model_is_kept_whoever_waits(
    now: int, rank: int, warm_rank: int, age: int
) -> None:
    assert stays_at(now, CHEAP._replace(rank=rank, age=age), warm_rank)


@given(st.integers(R, 10**12), spans, st.integers(0, 3), st.integers(1, 4))
def test_after_r_a_better_tier_always_wins(now: int, age: int, rank: int, worse: int) -> None:
    assert not stays_at(now, CHEAP._replace(rank=rank, age=age), rank + worse)


@given(st.integers(0, 2 * PATIENCE), st.integers(0, 3))
def test_after_r_among_equals_it_stays_while_the_slack_exceeds_one_service_time(
    age: int, better: int
) -> None:
    pick = CHEAP._replace(rank=3, age=age)
    slack = pick.patience - age - pick.load
    assert stays_at(R, pick, 3 - better) == (slack > pick.service_time)


@given(picks, st.integers(0, 4), spans)
def test_a_load_under_a_twentieth_of_the_service_time_is_never_waited_for(
    pick: Pick, warm_rank: int, now: int
) -> None:
    cheap = pick._replace(load=min(pick.load, max(0, pick.service_time // 20 - 1)))
    if cheap.load * 20 < cheap.service_time:
        assert not stays(Affinity.RESIDENCY, 3, LOADED, cheap, warm_rank, now)


@given(picks, st.integers(0, 4), spans)
def test_without_affinity_nothing_is_kept(pick: Pick, warm_rank: int, now: int) -> None:
    assert not stays(Affinity.NONE, 3, LOADED, pick, warm_rank, now)


models = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 4), min_size=1)


@given(models, models, st.data())
def test_the_most_wanted_model_has_the_most_users_a_worker(
    users: dict[str, int], loads: dict[str, int], data: st.DataObject
) -> None:
    own = data.draw(st.sampled_from(sorted(users)))

    def crowd(model: str) -> Fraction:
        return Fraction(users[model], loads.get(model, 0) + 1)

    most = max(crowd(model) for model in users)
    equals = sorted(model for model in users if crowd(model) == most)
    mixed = dict(data.draw(st.permutations(list(users.items()))))
    assert most_wanted(mixed, loads, own) == (own if own in equals else equals[0])


@given(st.integers(1, 9), st.integers(0, 20), spans, spans)
def test_in_batches_it_stays_for_so_many_jobs_unless_somebody_is_out_of_patience(
    batch: int, streak: int, age: int, patience: int
) -> None:
    pick = CHEAP._replace(age=age, patience=patience)
    kept = stays(Affinity.BATCH, batch, Loaded("m", 0, streak), pick, 1, 10**12)
    assert kept == (streak < batch and age < patience)


def test_a_worker_remembers_since_when_and_how_often_it_used_its_model() -> None:
    loaded = Loaded().after("m", 5).after("m", 6).after("m", 7)
    assert loaded == Loaded("m", since=5, streak=3)
    assert loaded.after("n", 9) == Loaded("n", since=9, streak=1)
