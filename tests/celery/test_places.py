"""Places that a process reserves ahead while it publishes in bulk: fewer requests, the same
choices, and no load that stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from kombu.exceptions import EncodeError

from fairlane.celery import places
from fairlane.celery.leases import Load
from tests.celery.site import Site, eventually

TWENTY = {"queues": 20}
HOUR = 3600


@pytest.fixture
def long_bulk(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No pause ends the bulk while the test runs."""
    monkeypatch.setattr(places, "PAUSE_SECONDS", HOUR)
    yield
    site.balancer.close()


def requests(site: Site, work: Callable[[], object]) -> int:
    """How many scripts the server runs meanwhile: those of the work, and a few of workers that an
    earlier test has left behind."""
    site.client.config_resetstat()
    work()
    return int(site.client.info("commandstats")["cmdstat_evalsha"]["calls"])


def choose(site: Site, count: int) -> list[str]:
    """Chooses as often as `count` publishes would."""
    chosen = list[str]()
    for _ in range(count):
        chosen.append(site.balancer.choose("task"))
        site.balancer.publishing.take_reserved(chosen[-1])
    return chosen


@pytest.mark.usefixtures("long_bulk")
@pytest.mark.parametrize("site", [TWENTY], indirect=True)
def test_a_bulk_needs_one_request_for_sixteen_publishes(site: Site) -> None:
    choose(site, 1)  # loads the script
    assert requests(site, lambda: choose(site, 99)) >= 99
    assert 10 <= requests(site, lambda: choose(site, 160)) < 80
    assert {load.pending for load in site.loads().values()} == {13}


@pytest.mark.usefixtures("long_bulk")
@pytest.mark.parametrize("site", [{"reserve_ahead": 1}, {"weights": True}], indirect=True)
def test_nothing_is_reserved_ahead_if_asked_or_with_weights(site: Site) -> None:
    choose(site, 150)
    assert site.total() == Load(150, 0)


@pytest.mark.usefixtures("long_bulk")
@pytest.mark.parametrize("site", [TWENTY], indirect=True)
def test_the_choices_of_many_threads_in_a_bulk_are_even(site: Site) -> None:
    ready, chosen = threading.Barrier(10), list[str]()

    def publish() -> None:
        ready.wait()
        chosen.extend(choose(site, 30))

    threads = [threading.Thread(target=publish) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(chosen) == dict.fromkeys(site.balancer.options.queues, 15)


@pytest.mark.usefixtures("long_bulk")
@pytest.mark.parametrize("site", [TWENTY], indirect=True)
def test_a_hundred_choices_of_four_processes_are_even(site: Site) -> None:
    children = list[int]()
    for _ in range(4):
        child = os.fork()
        if child == 0:  # pragma: no cover
            choose(site, 25)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert {*site.loads().values()} == {Load(5, 0)}
    assert len(site.loads()) == 20


def test_places_that_a_bulk_has_left_are_given_back(site: Site) -> None:
    for _ in range(101):
        site.tasks.add.delay(1, 2)
    eventually(lambda: site.total() == Load(101, 0), "only what was published counts")


def test_a_publish_after_a_pause_does_not_use_old_places(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PAUSE_SECONDS", HOUR)
    choose(site, 101)
    assert site.total() == Load(116, 0)
    monkeypatch.setattr(places, "PAUSE_SECONDS", 0)
    choose(site, 1)
    assert site.total() == Load(102, 0)
    site.balancer.close()


@pytest.mark.usefixtures("long_bulk")
def test_the_place_of_a_publish_that_failed_in_a_bulk_is_given_back(site: Site) -> None:
    choose(site, 101)
    for _ in range(3):
        with pytest.raises(EncodeError):
            site.tasks.add.delay(object(), 2)
    choose(site, 1)
    site.balancer.close()
    assert site.total() == Load(102, 0)


@pytest.mark.usefixtures("long_bulk")
def test_a_forked_process_does_not_publish_with_the_places_of_its_parent(site: Site) -> None:
    choose(site, 101)
    child = os.fork()
    if child == 0:  # pragma: no cover
        choose(site, 1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert site.total() == Load(117, 0)


@pytest.mark.usefixtures("long_bulk")
def test_without_redis_a_bulk_goes_on(site: Site) -> None:
    choose(site, 101)
    site.server.pause()
    try:
        assert {*choose(site, 100)} <= {*site.balancer.options.queues}
    finally:
        site.server.resume()


def test_a_program_that_ends_after_a_bulk_leaves_no_place(site: Site) -> None:
    code = "from tests.celery.app import add\nfor n in range(150): add.delay(n, n)"
    subprocess.run([sys.executable, "-c", code], env=site.environment, check=True)
    assert site.total() == Load(150, 0)
