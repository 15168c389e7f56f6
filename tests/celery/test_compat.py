"""The function names of hand-written load balancers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlane.celery import compat
from fairlane.celery.leases import Load
from tests.celery.site import Site


@pytest.fixture
def current(site: Site) -> Site:
    site.tasks.app.set_current()
    return site


def test_the_best_queue_is_looked_at_and_not_reserved(current: Site) -> None:
    assert compat.select_best_queue() == "queue_0"
    current.tasks.add.delay(1, 2)
    assert [compat.select_best_queue() for _ in range(3)] == ["queue_1"] * 3
    assert current.total() == Load(1, 0)


def test_tasks_are_sent_to_the_least_loaded_queue_or_to_the_queue_of_a_user(current: Site) -> None:
    for _ in range(4):
        compat.enqueue_task_with_load_balancing(current.tasks.add, 1, b=2)
    assert compat.get_all_queue_loads() == {f"queue_{n}": (1, 0) for n in range(4)}
    compat.enqueue_task_to_user_queue(current.tasks.add, "anna", 1, 2)
    assert sorted(load.pending for load in compat.get_all_queue_loads().values()) == [1, 1, 1, 2]


@pytest.mark.parametrize(
    "count",
    [
        compat.increment_pending,
        compat.decrement_pending,
        compat.increment_running,
        compat.decrement_running,
    ],
)
def test_counting_by_hand_does_nothing_and_warns(
    current: Site, count: Callable[[str], None]
) -> None:
    current.tasks.add.delay(1, 2)
    with pytest.warns(DeprecationWarning, match="does nothing"):
        count("queue_0")
    assert compat.get_queue_load("queue_0") == (1, 0)


def test_the_loads_are_mirrored_for_redis_cli(current: Site) -> None:
    current.tasks.add.delay(1, 2)
    assert current.client.get("queue:queue_0:pending") == b"1"
    assert current.client.get("queue:queue_0:running") == b"0"


def test_a_reset_counts_again_what_the_broker_holds(current: Site) -> None:
    for _ in range(3):
        current.tasks.add.delay(1, 2)
    current.balancer.choose("lost")
    compat.reset_queue_counters("queue_3")
    assert compat.get_queue_load("queue_3") == (0, 0)
    compat.reset_queue_counters()
    assert compat.get_all_queue_loads() == {
        "queue_0": (1, 0),
        "queue_1": (1, 0),
        "queue_2": (1, 0),
        "queue_3": (0, 0),
    }
