"""The disk of the ledger is really full: a file system without a free page."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fairlane.servers import Postgres, Redis
from tests.cluster.fleet import comes_true
from tests.gateway.site import Site
from tests.small_disk import SmallDisk, can_mount, damage, database_on

REFUSALS = 30
INPUT = "x" * 2000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if not can_mount():
        pytest.skip("a small file system needs the right to mount")
    with SmallDisk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
async def site_on_disk(mode: str, tmp_path: Path, disk: SmallDisk) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        stores = {}
        if mode == "cluster":
            server = stack.enter_context(Postgres(fsync=True, in_memory=True))
            redis = stack.enter_context(Redis())
            stores = {
                "DATABASE_URL": await database_on(disk, server),
                "REDIS_URL": redis.url,
            }
        site = Site(tmp_path, stores, stack)
        site.set("server", data=str(disk.folder))
        await site.open()
        yield site


async def test_a_full_disk_is_503_and_damages_nothing(site_on_disk: Site, disk: SmallDisk) -> None:
    """I34, I1: submits are refused with `storage_unavailable`, and jobs can be read. The call that
    runs goes on; its result is kept until there is room. Nothing accepted is lost."""
    site = site_on_disk
    chat = site.services["fast_chat_llm"]
    chat.seconds = 0.5
    api = await site.serve()
    caller = await site.caller(api)
    running = (await caller.submit("fast_chat_llm"))["job_id"]
    await chat.until(lambda it: it.running == 1)
    accepted, refused = [running], 0
    disk.fill()
    wish = {"feature_name": "fast_chat_llm", "input_data": INPUT}
    while refused < REFUSALS:
        answer = await caller.http.post("/api/v1/jobs", json=wish)
        if answer.status_code == 202:  # there was room in a page
            accepted.append(answer.json()["job_id"])
            continue
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        assert answer.headers["Retry-After"] == "1"
        refused += 1
    ready = await caller.http.get("/readyz")
    assert (ready.status_code, ready.text) == (503, "not ready: storage unavailable")
    assert (await caller.job(running))["job_id"] == running
    disk.make_room()

    async def takes_jobs() -> bool:
        answer = await caller.http.post("/api/v1/jobs", json=wish)
        accepted.extend([answer.json()["job_id"]] if answer.status_code == 202 else [])
        return answer.status_code == 202

    await comes_true(takes_jobs)
    for job in accepted:
        assert (await caller.ended(job))["status"] == "completed"
    assert len({call.job for call in chat.calls}) == len(chat.calls) == len(accepted)
    await api.kill()
    if site.clustered:
        assert await damage(site.variables["DATABASE_URL"]) == ""
    else:
        with sqlite3.connect(disk.folder / "ledger.db") as ledger:
            assert ledger.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
