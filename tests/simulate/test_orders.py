"""What the orders to compare with do, and what ours promises beside them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.simulate.ablation import RULES, WithoutReservation
from fairlane.simulate.fairlane_order import FairlaneOrder
from fairlane.simulate.figures import SHORT_RUN_JOBS, figures
from fairlane.simulate.promotion_bound import violations
from fairlane.simulate.scenario import Scenario
from fairlane.simulate.two_pools import crossed
from fairlane.simulate.workload import Arrival
from tests.simulate.small import FREE, PAID, asking, draw, job, plain, starts
from tests.simulate.small import settings as catalog_of


def crowd() -> Scenario:
    """One slot, busy until 10. Three of user a, then one of b, then a paid one."""
    return asking(
        catalog_of(plain()),
        job(0, user="x"),
        *[job(1 + n / 10, user="a") for n in range(3)],
        job(2, user="b"),
        job(3, user="p", rank=PAID),
    )


def test_first_come_first_served() -> None:
    assert starts(crowd().run("fifo")) == [0, 10, 20, 30, 40, 50]


def test_strict_serves_the_better_tier_first() -> None:
    assert starts(crowd().run("strict")) == [0, 20, 30, 40, 50, 10]


def test_round_robin_lets_users_take_turns_whatever_they_pay() -> None:
    assert starts(crowd().run("round robin")) == [0, 10, 40, 50, 20, 30]


def test_strict_and_round_robin_takes_turns_inside_a_tier() -> None:
    assert starts(crowd().run("strict + round robin")) == [0, 20, 40, 50, 30, 10]


def test_weights_serve_a_better_tier_more_often() -> None:
    jobs = [job(1, user=f"u{n}", rank=n % 2) for n in range(12)]
    asked = asking(catalog_of(plain()), job(0), *jobs)
    begun = starts(asked.run("weights"))[1:]
    first_six = sorted(range(12), key=begun.__getitem__)[:6]
    assert [n % 2 for n in first_six].count(PAID) == 4


def test_queues_by_hash_keep_a_user_in_one_queue() -> None:
    asked = asking(catalog_of(plain(4)), *[job(0, user="a") for _ in range(4)])
    assert starts(asked.run("queues by hash")) == [0, 10, 20, 30]
    assert starts(asked.run("least-loaded queues")) == [0, 0, 0, 0]


def test_affinity_in_threes_switches_after_three() -> None:
    jobs = [job(n / 10, user=f"u{n}", model="m" if n != 1 else "n", load=1) for n in range(6)]
    asked = asking(catalog_of(draw()), *jobs)
    order = sorted(range(6), key=starts(asked.run("affinity in threes")).__getitem__)
    assert order == [0, 2, 3, 1, 4, 5]


def test_isolated_pools_leave_workers_idle_beside_waiting_jobs() -> None:
    """Thirteen places are pools of 5, 5 and 3: the free tier of two is in the second."""
    asked = asking(catalog_of(plain(13)), *[job(0, user=f"u{n}") for n in range(13)])
    assert sorted(starts(asked.run("isolated pools"))) == [0] * 5 + [10] * 5 + [20] * 3


arrivals = st.lists(
    st.builds(
        job,
        st.integers(0, 300),
        st.integers(1, 40),
        user=st.sampled_from("abc"),
        rank=st.sampled_from([PAID, FREE]),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(arrivals, st.integers(1, 3))
def test_without_fairness_and_caps_the_bound_holds_for_everybody(
    several: list[Arrival], slots: int
) -> None:
    """I17"""
    assert violations(asking(catalog_of(draw(slots)), *several)) == 0


def test_the_bound_would_be_broken_without_ageing() -> None:
    """I17: otherwise it would say nothing."""
    flood = [job(10 * n - 1, 10, user=f"p{n}", rank=PAID) for n in range(1, 40)]
    asked = asking(catalog_of(plain()), job(0), job(5, user="f"), *flood)
    longest = RULES["no ageing"](asked.catalog)
    assert starts(replace(asked, catalog=longest).run())[1] > 300
    assert starts(asked.run())[1] <= 10 + 60 + 10


def test_the_hold_bounds_the_wait_for_two_pools() -> None:
    asked = crossed(0.97, 1_500, seed=1)
    held, free = (
        asked.run(),
        asked.run_with(lambda catalog, _: FairlaneOrder(catalog, WithoutReservation)),
    )
    waits = [
        max(each.begun - each.ready_at for each in run.served if each.service == "both")
        for run in (held, free)
    ]
    assert waits[0] <= waits[1]


def test_every_figure_can_be_taken_without_traces() -> None:
    names = [each.name for each in figures(None, 1, SHORT_RUN_JOBS)]
    assert len(names) == len(set(names)) > 10
