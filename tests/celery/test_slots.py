"""`with fairlane.slot(…)` inside Celery tasks: a real server, and real workers that hold slots."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.celery.site import WITHIN_SECONDS, Site
from tests.gateway.site import Caller
from tests.gateway.site import Site as Gateway

pytestmark = pytest.mark.long


@asynccontextmanager
async def limited(site: Site, folder: Path) -> AsyncIterator[Caller]:
    """A server whose service "image_gen" has one slot, which the tasks of the workers can hold."""
    async with AsyncExitStack() as stack:
        gateway = Gateway(folder, {}, stack, preset="tasks")
        await gateway.open()
        gateway.set("services.image_gen", executor="caller", limit=1)
        server = await gateway.serve()
        caller = await gateway.caller(server)
        key = caller.http.headers["Authorization"].removeprefix("Bearer ")
        site.environment |= {"FAIRLANE_URL": server.url, "FAIRLANE_KEY": key}
        yield caller


async def states(caller: Caller) -> Counter[str]:
    answer = await caller.http.get("/api/v1/jobs")
    return Counter(job["status"] for job in answer.json()["jobs"])


async def first_of(site: Site, *names: str) -> tuple[str, int]:
    """Which task holds the slot, and its process."""
    keys = [f"started:{name}" for name in names]
    found: Any = await asyncio.to_thread(site.client.blpop, keys, WITHIN_SECONDS)
    assert found is not None, "no task got the slot"
    return found[0].decode().partition(":")[2], int(found[1])


async def until(caller: Caller, **wanted: int) -> None:
    async with asyncio.timeout(WITHIN_SECONDS):
        while (await states(caller)) != Counter(wanted):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
async def test_tasks_share_the_slots_of_a_limited_service(
    site: Site, tmp_path: Path, pool: str
) -> None:
    async with limited(site, tmp_path) as caller:
        with site.worker("-P", pool, "-c", "2"):
            results = [
                site.tasks.in_slot.apply_async((name, "image_gen"), queue="celery") for name in "ab"
            ]
            first, _ = await first_of(site, "a", "b")
            await until(caller, running=1, queued=1)
            site.let_go(first)
            second, _ = await first_of(site, "a", "b")
            assert {first, second} == {"a", "b"}
            site.let_go(second)
            for result in results:
                await asyncio.to_thread(result.get, timeout=WITHIN_SECONDS)
            await until(caller, completed=2)


async def test_a_killed_task_frees_its_slot_when_its_lease_ends(site: Site, tmp_path: Path) -> None:
    async with limited(site, tmp_path) as caller:
        with site.worker("-P", "prefork", "-c", "2"):
            for name in "ab":
                site.tasks.in_slot.apply_async((name, "image_gen"), queue="celery")
            first, child = await first_of(site, "a", "b")
            await until(caller, running=1, queued=1)
            os.kill(child, signal.SIGKILL)
            second, _ = await first_of(site, "a", "b")
            assert second != first
            site.let_go(second)
