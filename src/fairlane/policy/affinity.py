"""Model affinity: when a worker keeps its loaded model instead of taking the next job. Loading a
model costs every user time; staying costs the next job time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fairlane.model.service import Affinity
from fairlane.model.worker import Loaded

LOAD_SHARE_THOUSANDTHS = 80
"""The accepted share of a worker's time for loading models (β), in thousandths."""

MIN_LOAD_THOUSANDTHS = 50
"""The share of the service time, in thousandths, below which a load is too cheap to avoid."""

MAX_COMPARED_MODELS = 256
"""The most models of one tier that are compared: a claim that loads a model reads all of them."""

MAX_MODEL_SLOTS = 256
"""The most slots of a called service that remember their models: a claim compares all of them."""


class Pick(NamedTuple):
    """The next job in order: its tier's rank and patience, how long it has aged, how long loading
    its model takes, how long one job of it runs, and whether the service has a single slot."""

    rank: int
    patience: int
    age: int
    load: int
    service_time: int
    single_slot: bool


def stays(
    rule: Affinity, batch_size: int, loaded: Loaded, pick: Pick, warm_rank: int, now: int
) -> bool:
    """Whether the best job for the loaded model (of tier rank `warm_rank`) goes before the pick."""
    if rule is Affinity.BATCH:
        return loaded.streak < batch_size and pick.age < pick.patience
    if rule is Affinity.NONE or not is_worth_it(pick):
        return False
    if now - loaded.since < residency(pick):
        return True
    if pick.rank < warm_rank:
        return False
    return pick.patience - pick.age - pick.load > pick.service_time


def may_wait(rule: Affinity, pick: Pick) -> bool:
    """Whether a worker that has to load a model may load another model of that tier instead."""
    return rule is Affinity.RESIDENCY and is_worth_it(pick) and pick.age < pick.patience


def most_wanted(users: Mapping[str, int], loads: Mapping[str, int], own: str) -> str:
    """The model with the most waiting users per worker that has loaded it lately, counting this
    one. On a tie `own`, then the first by name. With too many models to compare, `own`."""
    best = own
    if len(users) > MAX_COMPARED_MODELS:
        return own
    for model, waiting in users.items():
        here, there = waiting * (loads.get(best, 0) + 1), users[best] * (loads.get(model, 0) + 1)
        if here > there or (here == there and best != own and model < best):
            best = model
    return best


def slot_preference(loaded: Loaded, model: str) -> tuple[int, int]:
    """Orders the free slots of a called service for a job with this model, the best one first: it
    has the model, it has none, its model was loaded first."""
    return (0 if loaded.model == model else 2 if loaded.model else 1), loaded.since


def is_worth_it(pick: Pick) -> bool:
    return pick.load * 1000 >= pick.service_time * MIN_LOAD_THOUSANDTHS


def residency(pick: Pick) -> int:
    """How long a loaded model is kept while it has work: loads then take at most β of the time."""
    stay = pick.load * (1000 - LOAD_SHARE_THOUSANDTHS) // LOAD_SHARE_THOUSANDTHS
    return min(stay, pick.patience) if pick.single_slot else stay
