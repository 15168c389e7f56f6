"""Model affinity: when a worker should keep the model it has loaded instead of taking the job that
is up. Loading costs everybody's time; staying costs the waiting job's."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.model.service import Affinity
from fairlane.model.worker import Loaded

LOAD_SHARE = 80
"""The part of a worker's time, in thousandths, accepted for loading models (β)."""

WORTH_IT = 50
"""Below this part of the service time, in thousandths, a load is too cheap to care."""


class Pick(NamedTuple):
    """The job that is up: its tier's rank and patience, how long it has aged, what loading its
    model takes, how long one job of it runs, and whether one slot serves everybody."""

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
    if rule is Affinity.NONE or pick.load * 1000 < pick.service_time * WORTH_IT:
        return False
    if now - loaded.since < residency(pick):
        return True
    if pick.rank < warm_rank:
        return False
    return pick.patience - pick.age - pick.load > pick.service_time


def residency(pick: Pick) -> int:
    """How long a loaded model is kept while it has work: loads then take at most β of the time."""
    stay = pick.load * (1000 - LOAD_SHARE) // LOAD_SHARE
    return min(stay, pick.patience) if pick.single_slot else stay
