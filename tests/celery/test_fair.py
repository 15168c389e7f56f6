"""The fair queue: one line per user, with real workers."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from fairlane.celery import apply_fair, enqueue_fair
from fairlane.celery.fair import FairQueue
from fairlane.celery.leases import Load
from fairlane.celery.loads import LoadReader
from tests.celery.site import Site, eventually


def noted(site: Site) -> list[str]:
    """The users of the tasks that started, in this order."""
    return [json.loads(each)[0] for each in site.client.lrange("noted", 0, -1)]


def handed(site: Site, worker: str = "w@test") -> list[str]:
    """The users of the messages that were handed to a worker, the first one first."""
    found = site.client.lrange(f"fair.{worker}", 0, -1)
    return [json.loads(each)["headers"]["fairlane_user"] for each in reversed(found)]


def finish_one(site: Site, worker: str = "w@test") -> str:
    """A worker runs the next message it was handed."""
    message = json.loads(site.client.rpop(f"fair.{worker}"))
    nonce = message["headers"]["fairlane_lease"].rpartition("|")[2]
    lease = f"fair.{worker}|{nonce}"
    site.balancer.leases.start(lease, worker)
    site.balancer.leases.finish(lease)
    FairQueue(site.balancer).release()
    return str(message["headers"]["fairlane_user"])


def test_users_take_turns(site: Site) -> None:
    fair = FairQueue(site.balancer)
    fair.join("w@test", 1)
    for user, count in (("anna", 4), ("ben", 3), ("cleo", 1)):
        for _ in range(count):
            enqueue_fair(site.tasks.note, user, user)
    order = [finish_one(site) for _ in range(8)]
    assert order == ["anna", "ben", "cleo", "anna", "ben", "anna", "ben", "anna"]


def test_a_user_who_sends_one_task_at_a_time_does_not_starve_others(site: Site) -> None:
    FairQueue(site.balancer).join("w@test", 1)
    for _ in range(6):
        enqueue_fair(site.tasks.note, "bulk", "bulk")
    served = list[str]()
    for _ in range(10):
        enqueue_fair(site.tasks.note, "again", "again")
        served.append(finish_one(site))
    assert Counter(served[:10])["bulk"] >= 5


def test_a_worker_is_handed_as_many_tasks_as_it_has_slots(site: Site) -> None:
    fair = FairQueue(site.balancer)
    for n in range(9):
        enqueue_fair(site.tasks.note, f"u{n}", "x")
    fair.join("w@test", 2)
    fair.join("v@test", 3)
    assert (len(handed(site)), len(handed(site, "v@test"))) == (2, 3)
    assert LoadReader(site.balancer.leases).read()["fair"] == Load(9, 0)


def test_tasks_of_a_worker_that_left_go_to_others(site: Site) -> None:
    fair = FairQueue(site.balancer)
    fair.join("w@test", 2)
    for user in ("anna", "ben", "cleo"):
        enqueue_fair(site.tasks.note, user, user)
    fair.leave("w@test")
    assert handed(site) == []
    fair.join("v@test", 3)
    assert sorted(handed(site, "v@test")) == ["anna", "ben", "cleo"]
    assert site.balancer.leases.loads(["fair.w@test"])["fair.w@test"] == Load(0, 0)


def test_a_task_with_an_eta_takes_no_slot_until_it_is_due(site: Site) -> None:
    FairQueue(site.balancer).join("w@test", 1)
    apply_fair(site.tasks.note, "anna", ("anna",), countdown=3600)
    enqueue_fair(site.tasks.note, "ben", "ben")
    assert handed(site) == ["ben"]
    apply_fair(site.tasks.note, "cleo", ("cleo",), eta=datetime.now(UTC) - timedelta(1))  # noqa: TID251
    finish_one(site)
    assert handed(site) == ["cleo"]


def test_a_priority_does_not_change_the_line(site: Site) -> None:
    FairQueue(site.balancer).join("w@test", 9)
    apply_fair(site.tasks.note, "anna", ("anna",), priority=9)
    assert handed(site) == ["anna"]


def test_any_text_is_a_user(site: Site) -> None:
    FairQueue(site.balancer).join("w@test", 9)
    for user in ('a"b', "ü|\\", "", 42):
        enqueue_fair(site.tasks.note, user, "x")
    assert len(handed(site)) == 4


@pytest.mark.parametrize("site", [{"redis": "redis://127.0.0.1:1/0"}], indirect=True)
def test_a_fair_task_is_refused_if_the_leases_are_not_in_the_broker(site: Site) -> None:
    """No worker would get its message."""
    with pytest.raises(ValueError, match="the leases in it"):
        enqueue_fair(site.tasks.note, "anna", "anna")
    assert site.client.llen("fair") == 0


def test_tasks_in_line_are_shown_before_the_first_worker_starts(site: Site) -> None:
    enqueue_fair(site.tasks.note, "anna", "anna")
    where = LoadReader.at(site.server.url, site.balancer.options.key_prefix)
    assert where.read()["fair"] == Load(1, 0)
    where.close()


@pytest.mark.long
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_bulk_delays_a_single_task_of_another_user_by_one_task_at_most(
    site: Site, pool: str
) -> None:
    """With the default settings of two workers: they prefetch four tasks a slot."""
    with (
        site.worker("-P", pool, "-c", "2", name="w1"),
        site.worker("-P", pool, "-c", "2", name="w2"),
    ):
        for _ in range(100):
            enqueue_fair(site.tasks.work, "bulk", "bulk", 50)
        before = len(noted(site))
        enqueue_fair(site.tasks.work, "single", "single", 50)
        eventually(lambda: len(noted(site)) == 101, "all tasks ran")
        place = noted(site).index("single")
        assert place - before <= 8  # four that were handed out, and those that ended meanwhile
        site.stays(0, 0)


@pytest.mark.long
def test_retries_results_and_revokes_work_in_the_fair_queue(site: Site) -> None:
    with site.worker("-P", "prefork", "-c", "2"):
        assert enqueue_fair(site.tasks.add, "anna", 1, 2).get(timeout=30) == 3
        enqueue_fair(site.tasks.retry, "anna", "r")
        assert [site.started("r") for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="as asked"):
            enqueue_fair(site.tasks.fail, "anna").get(timeout=30)
        for name in "ab":
            enqueue_fair(site.tasks.hold, "anna", name)
            site.started(name)
        waiting = enqueue_fair(site.tasks.hold, "ben", "c")
        waiting.revoke()
        for name in "ab":
            site.let_go(name)
        eventually(lambda: waiting.state == "REVOKED", "revoked")
        site.stays(0, 0)


@pytest.mark.long
def test_a_killed_worker_gives_its_fair_tasks_to_others(site: Site) -> None:
    with site.worker("-P", "threads", "-c", "1", name="w1") as killed:
        enqueue_fair(site.tasks.hold, "anna", "a")
        site.started("a")
        killed.kill()
        site.client.lpush("fair.w1@test", *_taken_back(site))
    with site.worker("-P", "threads", "-c", "2", name="w2"):
        site.started("b")
        site.let_go("b")
        site.stays(0, 0)


def _taken_back(site: Site) -> list[bytes]:
    """The message of a task that was handed to the killed worker and not taken."""
    site.client.hset(site.balancer.leases.key("fair:slots"), "w1@test", 2)
    enqueue_fair(site.tasks.hold, "ben", "b")
    return [site.client.rpop("fair.w1@test")]
