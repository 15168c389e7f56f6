"""The index chooses what a plain reading of the rules chooses."""

from __future__ import annotations

import pytest

from fairlane.units import SECOND
from tests.unit.fuzz import Fuzz, Models
from tests.unit.reference import Reference

SEEDS = 80
STEPS = 250


def both(fuzz: Fuzz) -> int:
    """Let the same things happen to the index and to the reference. How many jobs were handed
    out."""
    dice, driver, reference = fuzz.dice, fuzz.driver, Reference(fuzz.catalog)
    granted = 0
    for _ in range(STEPS):
        event = dice.random()
        if event < 0.3:
            for _ in range(dice.choice([1, 1, 3])):
                reference.put(fuzz.arrive(), driver.now)
        elif event < 0.33 and fuzz.waiting:
            reference.take(fuzz.cancel(dice.choice([*fuzz.waiting])))
        elif event < 0.6 and driver.running:
            end_a_job(fuzz, reference)
        elif event < 0.67:
            driver.pass_time(dice.choice([0.1, 1, 10, 30]))
        else:
            granted += compare_a_claim(fuzz, reference)
    return granted


def end_a_job(fuzz: Fuzz, reference: Reference) -> None:
    dice, driver = fuzz.dice, fuzz.driver
    proposal = driver.running[dice.choice([*driver.running])]
    rated = any(slot.until for slot in proposal.slots)
    if dice.random() < 0.2 and not rated:
        driver.drop(proposal)
        reference.free(proposal.token, None)
    else:
        actual = proposal.entry.cost * dice.choice([1, 2, 12]) // 2
        driver.finish(proposal, actual / SECOND)
        reference.free(proposal.token, actual)


def compare_a_claim(fuzz: Fuzz, reference: Reference) -> int:
    worker, n = fuzz.dice.choice(fuzz.workers), fuzz.dice.choice([1, 1, 2, 5])
    loaded, now = fuzz.loaded[worker.id], fuzz.driver.now
    picked = fuzz.claim(n, worker, loaded)
    tokens = [each.token for each in picked]
    tokens += [f"more{each}" for each in range(n - len(picked))]
    expected = reference.claim(worker, loaded, tokens, now)
    assert [(each.entry.id, each.slots, each.region) for each in picked] == expected
    for each in picked:
        fuzz.loaded[worker.id] = fuzz.loaded[worker.id].after(each.entry.model, now)
    return len(picked)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_index_hands_out_what_the_reference_hands_out(seed: int) -> None:
    both(Fuzz(seed))


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_the_index_loads_the_models_that_the_reference_loads(seed: int) -> None:
    both(Models(seed))


def test_the_fuzz_hands_out_enough_to_mean_something() -> None:
    assert sum(both(Fuzz(seed)) for seed in range(5)) > 150
