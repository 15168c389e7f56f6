"""The loads after every way in which a task can end, with real workers. Each test waits until the
loads are right, and then for some more looks of the reconciler: they must stay right."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import celery
import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from fairlane.celery import balanced, signals
from fairlane.celery.leases import Load
from tests.celery.site import Site, Worker, eventually

pytestmark = pytest.mark.long

PREFORK = ("-P", "prefork", "-c", "2")
THREADS = ("-P", "threads", "-c", "2")
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture(params=[PREFORK, THREADS], ids=["prefork", "threads"])
def worker(site: Site, request: pytest.FixtureRequest) -> Iterator[Worker]:
    with site.worker(*request.param) as worker:
        yield worker


@pytest.fixture
def prefork(site: Site) -> Iterator[Worker]:
    with site.worker(*PREFORK) as worker:
        yield worker


def test_success_ends_the_lease(site: Site, worker: Worker) -> None:
    site.tasks.hold.delay("a")
    site.started("a")
    site.stays(0, 1)
    site.let_go("a")
    site.stays(0, 0)


def test_failure_ends_the_lease_once(site: Site, worker: Worker) -> None:
    site.tasks.hold.apply_async(("a",), queue="queue_0")
    site.started("a")
    failed = site.tasks.fail.apply_async(queue="queue_0")
    with pytest.raises(ValueError, match="as asked"):
        failed.get(timeout=30)
    site.stays(0, 1)  # the other task of the queue still counts
    site.let_go("a")
    site.stays(0, 0)


def test_prefetched_tasks_are_pending(site: Site, worker: Worker) -> None:
    for name in "abcd":
        site.tasks.hold.delay(name)
    site.started("a")
    site.stays(2, 2)
    for name in "abcd":
        site.let_go(name)
    site.stays(0, 0)


def test_every_attempt_of_a_retry_has_its_own_lease(site: Site, worker: Worker) -> None:
    site.tasks.retry.delay("a")
    assert [site.started("a") for _ in range(3)] == [0, 1, 2]
    site.stays(0, 0)


def test_a_retry_that_waits_for_its_time_is_pending(site: Site, worker: Worker) -> None:
    site.tasks.retry.delay("a", countdown=3600)
    site.started("a")
    site.stays(1, 0)


@pytest.mark.parametrize("site", [{"rebalance_retries": True}], indirect=True)
def test_retries_are_balanced_again_if_asked(site: Site, worker: Worker) -> None:
    site.tasks.retry.delay("a", countdown=3600)
    for name in "bcde":
        site.tasks.hold.apply_async((name,), queue="queue_0", countdown=3600)
    site.becomes(5, 0)
    site.started("a")
    eventually(lambda: site.loads().get("queue_1") == Load(1, 0), "the retry is in queue_1")


def test_a_replaced_task_leaves_one_lease(site: Site, worker: Worker) -> None:
    site.tasks.replace.delay("a")
    site.started("a")
    site.stays(0, 1)
    site.let_go("a")
    site.stays(0, 0)


def test_a_revoked_task_leaves_when_a_worker_reaches_it(site: Site, worker: Worker) -> None:
    for name in "ab":
        site.tasks.hold.delay(name)
        site.started(name)
    waiting = site.tasks.hold.delay("c")
    site.stays(1, 2)
    waiting.revoke()
    eventually(lambda: waiting.id in worker.log.read_text(), "the worker has the revoke")
    for name in "abc":  # Celery 5.5 runs what it has handed to a thread
        site.let_go(name)
    site.stays(0, 0)


@pytest.mark.usefixtures("prefork")
def test_a_terminated_task_leaves(site: Site) -> None:
    running = site.tasks.hold.delay("a")
    site.started("a")
    running.revoke(terminate=True)
    site.stays(0, 0)


def test_an_expired_task_leaves_when_a_worker_reaches_it(site: Site, worker: Worker) -> None:
    site.tasks.hold.apply_async(("a",), expires=-1)
    site.stays(0, 0)


@pytest.mark.usefixtures("prefork")
def test_a_hard_time_limit_ends_the_lease(site: Site) -> None:
    """Celery 5.5 and 5.6 send no signal: the worker's own comparison finds it."""
    site.tasks.too_long.delay("a")
    site.started("a")
    site.stays(0, 0)


@pytest.mark.usefixtures("prefork")
def test_a_soft_time_limit_ends_the_lease(site: Site) -> None:
    site.tasks.too_long_softly.delay("a")
    site.started("a")
    site.stays(0, 0)


@pytest.mark.usefixtures("worker")
def test_a_task_that_is_rejected_for_good_leaves(site: Site) -> None:
    site.tasks.reject_for_good.delay("a")
    site.started("a")
    site.stays(0, 0)


def test_a_rejected_task_waits_again(site: Site, worker: Worker) -> None:
    site.tasks.reject.delay("a")
    for _ in range(2):
        site.started("a")
    site.stays(0, 1)
    site.let_go("a")
    site.stays(0, 0)


@pytest.mark.usefixtures("prefork")
def test_a_killed_child_ends_its_lease(site: Site) -> None:
    site.tasks.hold.delay("a")
    os.kill(site.started("a"), signal.SIGKILL)
    site.stays(0, 0)


@pytest.mark.usefixtures("prefork")
def test_a_task_of_a_killed_child_that_is_requeued_keeps_one_lease(site: Site) -> None:
    site.tasks.hold_late.delay("a")
    os.kill(site.started("a"), signal.SIGKILL)
    site.started("a")
    site.stays(0, 1)
    site.let_go("a")
    site.stays(0, 0)


@pytest.mark.skipif(celery.VERSION < (5, 7), reason="Celery 5.7 has retry_on_worker_lost")
@pytest.mark.usefixtures("prefork")
def test_a_task_of_a_killed_child_that_is_published_again_keeps_one_lease(site: Site) -> None:
    site.tasks.hold_again.delay("a")
    os.kill(site.started("a"), signal.SIGKILL)
    site.started("a")
    site.stays(0, 1)
    site.let_go("a")
    site.stays(0, 0)


@pytest.mark.usefixtures("worker")
def test_a_publish_that_the_broker_refused_leaves(site: Site) -> None:
    """The leases are in another Redis than the messages, and only the broker is away."""
    app = Celery("away", broker=NOWHERE)
    app.conf.update(task_publish_retry=False)
    balancer = balanced(app, queues=4, redis=site.server.url)
    app.conf.task_routes = (balancer,)
    for _ in range(2):
        with pytest.raises(OperationalError):
            app.send_task("task")
        assert site.total().pending <= 1  # each publish gives the place of the one before back
    site.stays(0, 0)
    signals.disconnect(balancer)
    balancer.close()
    app.close()


@pytest.mark.parametrize("arguments", [PREFORK, THREADS], ids=["prefork", "threads"])
def test_a_killed_worker_leaves_what_the_broker_still_holds(
    site: Site, arguments: tuple[str, ...]
) -> None:
    """Early acknowledgement: what ran is lost. Late: it is in `unacked` and will run again."""
    with site.worker("-Q", "queue_0,queue_1,queue_2,queue_3", *arguments, name="w1") as killed:
        site.tasks.hold.delay("early")
        site.tasks.hold_late.delay("late")
        for name in ("early", "late"):
            site.started(name)
        site.tasks.hold.delay("prefetched")
        eventually(lambda: site.client.hlen("unacked") == 2, "late and prefetched")
        killed.kill()
    with site.worker("-Q", "other", *arguments, name="w2"):
        site.stays(2, 0)


def test_a_worker_that_stops_leaves_what_the_broker_holds(site: Site, worker: Worker) -> None:
    for name in "abc":
        site.tasks.hold.delay(name)
    site.started("a")
    for name in "abc":
        site.let_go(name)
    worker.stop()
    left = sum(site.client.llen(queue) for queue in site.balancer.options.queues)
    with site.worker("-Q", "other", *THREADS, name="w2"):
        site.stays(left + site.client.hlen("unacked"), 0)


def test_a_purge_empties_the_loads(site: Site) -> None:
    with site.worker("-Q", "other", *THREADS):
        for _ in range(3):
            site.tasks.add.delay(1, 2)
        site.stays(3, 0)
        with site.tasks.app.connection_for_write() as connection:
            for queue in site.balancer.options.queues:
                connection.default_channel.queue_purge(queue)
        site.stays(0, 0)


@pytest.mark.parametrize("site", [{"durable": True}], indirect=True)
def test_a_task_that_runs_through_a_restart_of_the_broker_is_counted_until_it_ends(
    site: Site, worker: Worker
) -> None:
    running = site.folder / "a"
    site.tasks.hold_file.delay(str(running))
    eventually(running.with_suffix(".started").exists)
    site.becomes(0, 1)
    site.server.restart()
    eventually(site.is_up, "the broker is back")
    site.stays(0, 1)
    running.with_suffix(".go").touch()
    site.stays(0, 0)


@pytest.mark.parametrize("site", [{"durable": True}], indirect=True)
def test_waiting_tasks_and_their_loads_survive_a_restart_of_the_broker(site: Site) -> None:
    with site.worker("-Q", "other", *THREADS):
        for _ in range(3):
            site.tasks.add.delay(1, 2)
        site.server.restart()
        eventually(site.is_up, "the broker is back")
        site.stays(3, 0)


def test_tasks_of_other_programs_are_counted_while_they_run(site: Site, worker: Worker) -> None:
    app = site.tasks.app
    with app.connection_for_write() as connection:
        message = app.amqp.as_task_v2("some-id", "tests.celery.app.hold", ("a",), {})
        connection.Producer().publish(
            message.body, routing_key="queue_0", headers=message.headers, serializer="json"
        )
    site.started("a")
    site.stays(0, 1)
    site.let_go("a")
    site.stays(0, 0)
