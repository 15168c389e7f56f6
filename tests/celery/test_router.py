"""The router and the calls, without workers: what is chosen, and what is counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from celery import chain, group
from kombu.entity import Exchange, Queue
from kombu.exceptions import EncodeError

from fairlane.celery import (
    balanced,
    balanced_group,
    enqueue_balanced,
    enqueue_for_user,
)
from fairlane.celery.leases import Load
from fairlane.celery.reconciler import Reconciler
from fairlane.celery.router import LEASE_HEADER, Balancer
from tests.celery.site import Site

TWENTY = {"queues": 20}
NOWHERE = "redis://127.0.0.1:1/0"


def messages(site: Site, queue: str) -> list[dict[str, Any]]:
    return [json.loads(each)["headers"] for each in site.client.lrange(queue, 0, -1)]


@pytest.mark.parametrize("site", [TWENTY], indirect=True)
def test_a_hundred_simultaneous_choices_give_each_of_twenty_queues_five(site: Site) -> None:
    ready, chosen = threading.Barrier(100), list[str]()

    def choose() -> None:
        ready.wait()
        chosen.append(site.balancer.choose("task"))

    threads = [threading.Thread(target=choose) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(chosen) == dict.fromkeys(site.balancer.options.queues, 5)
    assert {*site.loads().values()} == {Load(5, 0)}


@pytest.mark.parametrize("site", [TWENTY], indirect=True)
def test_a_tie_goes_to_the_lowest_index_and_not_to_the_first_name(site: Site) -> None:
    assert site.balancer.choose_many("task", 20) == [f"queue_{n}" for n in range(20)]


def test_a_published_task_is_counted_once_and_carries_its_lease(site: Site) -> None:
    site.tasks.add.delay(1, 2)
    assert site.loads() == {"queue_0": Load(1, 0)}
    (headers,) = messages(site, "queue_0")
    assert [headers[LEASE_HEADER]] == [*site.balancer.leases.pending("queue_0")]


def test_a_queue_that_the_caller_chose_is_kept_and_counted(site: Site) -> None:
    site.tasks.add.apply_async((1, 2), queue="queue_3")
    site.tasks.add.apply_async((1, 2), queue="elsewhere")
    assert site.loads() == {"queue_3": Load(1, 0)}
    assert LEASE_HEADER not in messages(site, "elsewhere")[0]


@pytest.mark.parametrize(
    "site",
    [{"only": ["tests.celery.app.add"]}, {"exclude": ["tests.celery.app.note"]}],
    indirect=True,
)
def test_tasks_are_balanced_by_name(site: Site) -> None:
    site.tasks.note.delay("anna")
    assert site.loads() == {}
    site.tasks.add.delay(1, 2)
    assert site.total() == Load(1, 0)
    enqueue_balanced(site.tasks.note, "anna")
    assert site.total() == Load(2, 0)


@pytest.mark.parametrize("site", [{"queues": ["small", "large"]}], indirect=True)
def test_queues_have_the_names_that_are_configured(site: Site) -> None:
    for _ in range(4):
        site.tasks.add.delay(1, 2)
    assert site.loads() == {"small": Load(2, 0), "large": Load(2, 0)}


def test_a_failed_publish_gives_its_place_back_with_the_next_one(site: Site) -> None:
    with pytest.raises(EncodeError):
        site.tasks.add.delay(object(), 2)
    assert site.loads() == {"queue_0": Load(1, 0)}
    site.tasks.add.delay(1, 2)
    assert site.loads() == {"queue_0": Load(1, 0)}
    assert len(messages(site, "queue_0")) == 1


def test_a_publish_that_fails_before_it_knows_its_queue_gives_its_place_back(site: Site) -> None:
    for _ in range(3):
        with pytest.raises(TypeError):
            site.tasks.app.send_task("add", args=5)  # refused while the message is built
    site.tasks.add.delay(1, 2)
    assert site.loads() == {"queue_0": Load(1, 0)}


def test_a_failed_publish_without_a_next_one_is_dropped_after_two_looks(site: Site) -> None:
    with pytest.raises(EncodeError):
        site.tasks.add.delay(object(), 2)
    older = Reconciler(_with(site.balancer, grace_seconds=-1))
    older.look()
    assert site.total() == Load(1, 0)
    older.look()
    assert site.loads() == {}


def test_a_young_lease_is_not_judged(site: Site) -> None:
    """Between reservation and publish there is no message yet."""
    site.balancer.choose("task")
    patient = Reconciler(_with(site.balancer, grace_seconds=600))
    for _ in range(3):
        patient.look()
    assert site.total() == Load(1, 0)


@pytest.mark.parametrize("site", [{"redis": NOWHERE}], indirect=True)
def test_without_the_lease_store_tasks_are_sent_and_counted_later(site: Site) -> None:
    for _ in range(8):
        site.tasks.add.delay(1, 2)
    back = _with(site.balancer, redis=None)
    assert sum(len(messages(site, queue)) for queue in back.options.queues) == 8
    back.leases.configure()
    for _ in range(2):
        Reconciler(back).look()
    loads = back.leases.loads(back.options.queues)
    assert {q: load.pending for q, load in loads.items()} == {
        queue: len(messages(site, queue)) for queue in back.options.queues
    }


def test_an_error_of_the_router_does_not_reach_the_caller(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", lambda _: 1 / 0)
    assert site.balancer("task", (), {}, {}) is None


def test_messages_of_other_programs_are_counted(site: Site) -> None:
    message = {"body": "", "headers": {"id": "abc", "task": "add"}, "properties": {}}
    site.client.lpush("queue_1", json.dumps(message))
    reconciler = Reconciler(site.balancer)
    for _ in range(2):
        reconciler.look()
    assert site.loads() == {"queue_1": Load(1, 0)}


def test_messages_with_a_priority_are_found(site: Site) -> None:
    site.tasks.add.apply_async((1, 2), priority=9)
    reconciler = Reconciler(_with(site.balancer, grace_seconds=-1))
    for _ in range(3):
        reconciler.look()
    assert site.total() == Load(1, 0)


def test_a_purge_empties_the_loads(site: Site) -> None:
    for _ in range(8):
        site.tasks.add.delay(1, 2)
    site.client.delete("queue_0")
    reconciler = Reconciler(_with(site.balancer, grace_seconds=-1))
    for _ in range(2):
        reconciler.look()
    assert site.loads() == {f"queue_{n}": Load(2, 0) for n in (1, 2, 3)}


def test_a_long_list_is_read_to_its_end(site: Site) -> None:
    sent = [{"body": "", "headers": {"id": f"id{n}", "task": "add"}} for n in range(1234)]
    site.client.lpush("queue_0", *map(json.dumps, sent))
    reconciler = Reconciler(site.balancer)
    for _ in range(2):
        reconciler.look()
    assert site.loads() == {"queue_0": Load(1234, 0)}


def test_a_batch_is_spread(site: Site) -> None:
    site.tasks.add.apply_async((0, 0), queue="queue_1")
    balanced_group(site.tasks.add.s(n, n) for n in range(7))
    assert site.loads() == {f"queue_{n}": Load(2, 0) for n in range(4)}
    assert site.balancer.publishing.take_unpublished() == []


def test_a_batch_with_chains_is_spread_by_the_router(site: Site) -> None:
    add = site.tasks.add
    balanced_group([chain(add.s(1, 2), add.s(3)), add.s(1, 2)])
    group([add.s(1, 2), add.s(1, 2)]).apply_async()
    assert site.loads() == {f"queue_{n}": Load(1, 0) for n in range(4)}


def test_a_large_batch_is_reserved_in_parts(site: Site) -> None:
    """One script with all of it would keep Redis from its other clients."""
    chosen = site.balancer.choose_many("task", 1300)
    assert Counter(chosen) == dict.fromkeys(site.balancer.options.queues, 325)
    site.balancer.choose("task")
    assert site.total() == Load(1, 0)


def test_many_messages_without_leases_are_counted_in_parts(site: Site) -> None:
    leases = [f"queue_{n % 4}|{n}" for n in range(1300)]
    assert site.balancer.leases.adopt(leases) == 1300
    assert site.total() == Load(1300, 0)
    scores = dict.fromkeys(leases, 0.0)
    assert site.balancer.leases.drop(scores) == 0  # taken at another time
    taken = [site.balancer.leases.pending(queue) for queue in site.balancer.options.queues]
    assert sum(map(site.balancer.leases.drop, taken)) == 1300


@pytest.mark.parametrize("site", [{"queues": ["small", "pictures"]}], indirect=True)
def test_a_queue_of_a_topic_exchange_is_counted_by_its_name(site: Site) -> None:
    exchange = Exchange("all", "topic")  # type: ignore[no-untyped-call]
    queue = Queue("pictures", exchange, routing_key="all.pictures")  # type: ignore[no-untyped-call]
    for _ in range(2):
        site.tasks.add.apply_async((1, 2), queue=queue)
    assert site.loads() == {"pictures": Load(2, 0)}
    assert site.client.llen("pictures") == 2
    site.tasks.add.delay(1, 2)
    assert site.total() == Load(3, 0)  # the two publishes are known to have succeeded


def test_a_retry_to_another_queue_leaves_its_old_lease_behind(site: Site) -> None:
    headers = {LEASE_HEADER: "queue_0|of-the-attempt-before"}
    site.tasks.add.apply_async((1, 2), queue="elsewhere", headers=headers)
    assert LEASE_HEADER not in messages(site, "elsewhere")[0]


def test_two_versions_of_an_app_with_other_queues_publish_in_turn(site: Site) -> None:
    other = _with(site.balancer, queues=("queue_0", "queue_9"))
    for _ in range(3):
        assert site.balancer.choose("task") in site.balancer.options.queues
        assert other.choose("task") in other.options.queues
    other.close()


def test_all_tasks_of_a_user_have_one_queue(site: Site) -> None:
    for _ in range(5):
        enqueue_for_user(site.tasks.add, 42, 1, 2)
    assert [*site.loads().values()] == [Load(5, 0)]


@pytest.mark.parametrize("site", [{"weights": True}], indirect=True)
def test_with_weights_a_long_task_counts_as_many_short_ones(site: Site) -> None:
    leases = site.balancer.leases
    for task, seconds in (("long", 9.0), ("short", 1.0)):
        leases.register("queue_0|n", task)
        leases.finish("queue_0|n", task, seconds)
    assert leases.reserve("long", ["l"]) == ["queue_0"]
    chosen = leases.reserve("short", [str(n) for n in range(27)])
    assert Counter(chosen) == {"queue_1": 9, "queue_2": 9, "queue_3": 9}
    assert leases.reserve("short", ["s"]) == ["queue_0"]


def test_a_forked_process_has_its_own_connection(site: Site) -> None:
    leases = site.balancer.leases
    leases.reserve("task", ["before"])
    own = leases.call(lambda client: client.client_id())
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(0 if leases.call(lambda client: client.client_id()) != own else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert leases.call(lambda client: client.client_id()) == own
    leases.reserve("task", ["after"])
    assert site.total() == Load(2, 0)


def test_the_configured_queues_change_and_keep_their_loads(site: Site) -> None:
    for _ in range(4):
        site.tasks.add.delay(1, 2)
    more = _with(site.balancer, queues=(*site.balancer.options.queues, "queue_4"))
    assert more.choose("task") == "queue_4"
    assert site.balancer.choose("task") == "queue_0"


def test_a_server_that_forgot_the_scripts_gets_them_again(site: Site) -> None:
    site.tasks.add.delay(1, 2)
    site.client.script_flush()
    assert site.balancer.choose("task") == "queue_1"


@pytest.mark.parametrize("queues", [0, [], ["a", "a"], ["a|b"], ['a"b'], ["ü"], ["a b"], [""]])
def test_queues_that_cannot_be_told_apart_are_refused(site: Site, queues: Any) -> None:
    with pytest.raises(ValueError, match="queues"):
        balanced(site.tasks.app, queues)


def test_a_second_router_of_an_app_replaces_the_first(site: Site) -> None:
    site.tasks.app.conf.task_routes = (balanced(site.tasks.app, queues=4),)
    site.tasks.app.amqp.flush_routes()
    site.tasks.app.amqp.router = site.tasks.app.amqp.Router()
    site.tasks.add.delay(1, 2)
    assert site.total() == Load(1, 0)


def test_the_package_is_imported_without_celery() -> None:
    code = (
        "import sys; sys.modules.update(celery=None, kombu=None)\n"
        "import fairlane.celery, fairlane.celery.loads, fairlane.cli\n"
        "sys.modules.update(redis=None)\n"
        "import fairlane, fairlane.api.app\n"
        "assert not hasattr(fairlane.celery, 'nothing')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _with(balancer: Balancer, **changes: Any) -> Balancer:
    return Balancer(balancer.app, replace(balancer.options, **changes))
