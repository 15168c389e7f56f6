"""Many tasks that succeed, fail, retry, are rejected or revoked, or kill their process, while
workers are killed. Afterwards every load is 0 and equals the broker. `FAIRLANE_STORM_TASKS` changes
their number."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack, suppress

import pytest
from kombu.exceptions import EncodeError

from fairlane.celery.leases import Load
from tests.celery.site import Site, eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TASKS = int(os.environ.get("FAIRLANE_STORM_TASKS", "10000"))
KILLS = 5


def test_after_a_storm_every_load_is_zero_and_equals_the_broker(site: Site) -> None:
    chance = random.Random(18)
    with ExitStack() as stack:
        for part in range(KILLS):
            pool = ("prefork", "threads")[part % 2]
            worker = stack.enter_context(site.worker("-P", pool, "-c", "2", name=f"w{part}"))
            for _ in range(TASKS // KILLS):
                _send(site, chance)
            eventually(lambda: site.total().pending < TASKS // KILLS // 2, "half of them ran", 240)
            worker.kill()
        stack.enter_context(site.worker("-P", "threads", "-c", "2", name="last"))
        eventually(lambda: site.total().pending == _in_broker(site), "the loads equal", 240)
        _restore_unacked(site)
        eventually(lambda: site.total() == Load(0, 0), "all loads are 0", 240)
        site.stays(0, 0)
        assert _in_broker(site) == 0


def _send(site: Site, chance: random.Random) -> None:
    task = site.tasks.erratic if chance.random() < 0.5 else site.tasks.erratic_late
    sent = task.delay(chance.random())
    if chance.random() < 0.05:
        sent.revoke()
    if chance.random() < 0.002:
        site.tasks.kill_child.delay()
    if chance.random() < 0.01:
        with suppress(EncodeError):
            task.delay(object())


def _in_broker(site: Site) -> int:
    lists = sum(site.client.llen(queue) for queue in site.balancer.options.queues)
    return int(lists + site.client.hlen("unacked"))


def _restore_unacked(site: Site) -> None:
    """What the visibility timeout does after an hour: killed workers held these messages."""
    with site.tasks.app.connection_for_write() as connection:
        channel = connection.default_channel
        for tag in site.client.hkeys("unacked"):
            channel.qos.restore_by_tag(tag.decode())
