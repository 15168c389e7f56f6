"""The virtual clock, checked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairlane.model.catalog import Limits
from fairlane.model.service import Affinity, Provider, Region, Service
from fairlane.model.tier import Tier, Tiers
from fairlane.simulate.baselines import ORDERS
from fairlane.simulate.fairlane_order import FairlaneOrder
from fairlane.simulate.generate import WorkloadKind, generate
from fairlane.simulate.order import Nothing, SimulatedStep
from fairlane.simulate.places import places
from fairlane.simulate.scenario import Scenario
from fairlane.units import SECOND
from tests.simulate.small import FREE, PAID, TIERS, asking, draw, job, plain, settings, starts


def test_the_worked_example() -> None:
    """One slot, jobs of ten seconds. A at 0 runs until 10. At 10 two free jobs and a paid one
    wait: the paid one (10), then the older free one (20), then the other (30)."""
    asked = asking(
        settings(plain()),
        job(0, user="a"),
        job(1, user="b"),
        job(2, user="c"),
        job(3, user="p", rank=PAID),
    )
    assert starts(asked.run()) == [0, 20, 30, 10]
    report = asked.answer()
    paid, free = report.tiers
    assert (paid.p50, paid.longest, paid.within) == (7, 7, 1)
    assert (free.p50, free.longest, free.within) == (19, 28, 1)
    assert report.utilisation == 1


def test_after_its_patience_a_free_job_goes_before_a_younger_paid_one() -> None:
    """A paid job comes a second before each end. At 60 the free one of second 1 has waited 59 s,
    at 70 it has waited long enough."""
    paid = [job(10 * n - 1, user=f"p{n}", rank=PAID) for n in range(1, 9)]
    asked = asking(settings(plain()), job(0, user="p", rank=PAID), job(1, user="f"), *paid)
    assert starts(asked.run())[1] == 70


def test_an_idle_place_looks_again_only_while_something_waits_that_it_may_take() -> None:
    """Otherwise most of a run would be places that look at what is not for them."""
    catalog = settings(plain(), Service("other", limit=1))
    drawing, other = places(catalog, ["draw", "other"])
    ours = FairlaneOrder(catalog)
    for n in range(2):
        asked = SimulatedStep(n, job(0, user=f"u{n}"), [("draw", "draw||", 0)])
        asked.service, asked.lane = "draw", "draw||"
        ours.put(asked, 0)
    assert isinstance(ours.claim(drawing, 0), SimulatedStep)
    assert ours.claim(other, 0) == Nothing(None)
    assert ours.claim(drawing, 0) == Nothing(5 * SECOND)


def test_two_slots_serve_two_at_once() -> None:
    asked = asking(settings(plain(2)), job(0), job(0), job(0))
    assert starts(asked.run()) == [0, 0, 10]


def test_workers_serve_what_has_no_limit() -> None:
    asked = asking(settings(plain(0)), job(0), job(0), job(0), workers=2)
    assert starts(asked.run()) == [0, 0, 10]


def test_without_limit_and_workers_nobody_waits() -> None:
    asked = asking(settings(plain(0)), *[job(0) for _ in range(50)])
    report = asked.answer()
    assert starts(asked.run()) == [0] * 50
    assert report.utilisation is None


def test_a_load_counts_as_waiting_and_is_paid_once() -> None:
    service = draw(affinity=Affinity.RESIDENCY)
    asked = asking(settings(service), job(0, model="m", load=5), job(0, model="m", load=5))
    run = asked.run()
    assert starts(run) == [5, 15]
    assert (run.loads, run.load_time) == (1, 5 * SECOND)


def test_the_next_step_keeps_the_waiting_of_the_one_before() -> None:
    """Two wait for `cut` at 40. One came at 20 but had waited 10 s before: it goes first."""
    catalog = settings(
        plain(),
        replace(plain(), name="cut"),
        pipelines={"film": ("draw", "cut")},
    )
    asked = asking(
        catalog,
        job(0, (10, 30), name="film", user="a"),
        job(0, (10, 5), name="film", user="b"),
        job(12, 5, name="cut", user="c"),
    )
    cuts = [(each.job, each.begun / SECOND) for each in asked.run().served if each.service == "cut"]
    assert cuts == [(0, 10), (1, 40), (2, 45)]


def test_a_provider_limits_its_services_together() -> None:
    services = [
        Service(name, limit=2, provider="p", affinity=Affinity.NONE) for name in ("draw", "film")
    ]
    catalog = settings(*services, providers=[Provider("p", limit=2)])
    asked = asking(catalog, job(0), job(0, name="film"), job(0), job(0, name="film"))
    for order in ORDERS:
        if order != "isolated pools":  # has too few workers to use them
            assert sorted(starts(asked.run(order))) == [0, 0, 10, 10], order


def test_a_rate_lets_so_many_start_in_a_minute() -> None:
    service = Service("draw", rate=2, affinity=Affinity.NONE)
    asked = asking(settings(service), *[job(0, 1) for _ in range(4)], workers=4)
    assert starts(asked.run()) == [0, 0, 60, 60]


def test_each_region_has_its_own_places() -> None:
    regions = {name: Region(name, 1) for name in ("EU", "US")}
    asked = asking(
        settings(Service("draw", regions=regions, affinity=Affinity.NONE)), job(0), job(0), job(0)
    )
    assert starts(asked.run()) == [0, 0, 10]


def test_quotas_refuse_as_the_engine_does() -> None:
    tiers = Tiers([Tier("paid"), Tier("free", pending=2, per_hour=3)])
    catalog = settings(plain(), tiers=tiers)
    arrivals = [job(at, 10, rank=FREE) for at in (0, 1, 2, 30, 31, 32)]
    report = asking(catalog, *arrivals).answer()
    assert report.refused == {"too_many_pending": 1, "too_many_this_hour": 2}
    assert report.served == 3


def test_a_full_queue_refuses() -> None:
    catalog = settings(plain(), limits=Limits(waiting=1))
    report = asking(catalog, job(0), job(1), job(2)).answer()
    assert report.refused == {"queue_full": 1}


def test_a_full_service_refuses() -> None:
    report = asking(settings(draw(waiting=1)), job(0), job(1), job(2)).answer()
    assert report.refused == {"queue_full": 1}


def test_who_waits_longer_than_allowed_gives_up() -> None:
    asked = asking(
        settings(draw(max_wait=5, affinity=Affinity.NONE)), job(0, 20), job(1, 20), job(18, 20)
    )
    for order in ORDERS:
        report = asked.answer(order)
        assert (report.served, report.gave_up) == (2, 1), order


def test_a_cap_on_running_jobs_of_a_user_holds() -> None:
    tiers = Tiers([Tier("paid"), Tier("free", max_running_per_user=1)])
    asked = asking(settings(plain(2), tiers=tiers), job(0), job(0), job(1, user="v"))
    assert starts(asked.run()) == [0, 10, 1]


@pytest.mark.parametrize("order", ORDERS)
def test_the_same_workload_gives_the_same_answer(order: str) -> None:
    given = generate(
        WorkloadKind(jobs=300, users=20, models=3, names=("draw",)), len(TIERS), seed=7
    )
    asked = Scenario("again", settings(draw(3)), given)
    assert asked.run(order).served == asked.run(order).served
    assert generate(WorkloadKind(jobs=50), 3, seed=1) == generate(WorkloadKind(jobs=50), 3, seed=1)
    assert generate(WorkloadKind(jobs=50), 3, seed=1) != generate(WorkloadKind(jobs=50), 3, seed=2)


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_serves_everybody_and_never_more_than_fit(order: str) -> None:
    given = generate(
        WorkloadKind(jobs=400, users=20, models=4, names=("draw",)), len(TIERS), seed=3
    )
    asked = Scenario("all", settings(draw(3)), given)
    run = asked.run(order)
    assert sorted(each.job for each in run.served) == list(range(400))
    events = sorted(
        [(each.started, 1) for each in run.served] + [(each.ended, -1) for each in run.served]
    )
    running = most = 0
    for _, change in events:
        running += change
        most = max(most, running)
    assert most <= 3
