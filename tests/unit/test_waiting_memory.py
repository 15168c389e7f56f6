"""What a waiting job takes of the memory of an embedded queue, counted by the interpreter itself.
Resident memory, the ledger's cache included, is a figure of `fairlane bench`."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.model.job import NewJob
from fairlane.model.queue_entry import Entry
from fairlane.model.service import Service
from tests import stores
from tests.unit.driver import job, plain, world
from tests.world import TIERS, World, catalog

MOST = 320
"""Bytes: an entry 144, its id 85, in the table by id up to 46, in its line 9, some in no job's."""


@pytest.fixture
def counted() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("counted")
async def test_a_waiting_job_takes_little_more_than_its_entry_and_its_id(tmp_path: Path) -> None:
    settings = catalog(Service("work"))
    async with World(settings, tmp_path / "ledger.db", where=stores.Embedded()) as queue:
        await submit(queue, 1_000)
        before = taken()
        await submit(queue, 5_000)
        assert (taken() - before) / 5_000 <= MOST


def test_a_job_that_has_left_its_line_is_kept_by_nobody() -> None:
    driver = world(plain())
    before = entries()
    driver.put(*(job(str(n), at=n) for n in range(50)))
    driver.served(49)
    assert entries() - before == 1


async def submit(queue: World, jobs: int) -> None:
    """For 100 users, in three tiers, a hundred at a time."""
    for _ in range(0, jobs, 100):
        batch = [NewJob("work", user=f"u{n}", tier=TIERS.names[n % 3]) for n in range(100)]
        await queue.submit_all(batch)


def taken() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def entries() -> int:
    return sum(type(each) is Entry for each in gc.get_objects())  # isinstance evaluates proxies
