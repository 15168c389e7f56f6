"""What is learnt of models is bounded, and a service stands for models that nobody has seen."""

from __future__ import annotations

from fairlane.index.index import ModelSample, ModelTimes
from fairlane.index.memory.model_times import LearntTimes


def test_an_unknown_model_loads_as_long_as_others_of_its_service() -> None:
    learnt = LearntTimes()
    assert learnt.load_time("s", "m", 7) == 7
    learnt.learn(ModelSample("s", "m", 500))
    found = [learnt.load_time(*each, 7) for each in (("s", "m"), ("s", "other"), ("t", "m"))]
    assert found == [500, 500, 7]


def test_a_counted_load_says_nothing_of_its_time() -> None:
    learnt = LearntTimes()
    learnt.count_load("s", "m")
    assert learnt.load_time("s", "m", 7) == 7
    assert learnt.recent("s", None, 9) == [ModelTimes("s", "m", None, None, 1)]


def test_the_least_recently_updated_models_are_forgotten() -> None:
    learnt = LearntTimes(most=3)
    for n in range(9):
        learnt.learn(ModelSample("s", f"m{n}", work=5))
    assert [each.model for each in learnt.recent("s", None, 9)] == ["m8", "m7"]
