"""A service's own count of its calls, whatever happens to those who call it (I8)."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from fairlane.demo.services import SimulatedService
from tests.cluster.fleet import flush
from tests.gateway.site import LEASE, Caller, Running, Site

CALL, TIMEOUT = 4 * LEASE, 5 * LEASE
LIMITS = {"one": 1, "four": 4, "loose": 1}
USERS = 64

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
async def counted(site: Site) -> dict[str, SimulatedService]:
    """They refuse nothing, go on when somebody hangs up, and count. One is fast: its slots are
    free with the lease."""
    for name, limit in LIMITS.items():
        service = await site.add(SimulatedService(name, seconds=CALL), timeout=TIMEOUT)
        overrun = "fast" if name == "loose" else "strict"
        site.set(f"services.{name}", limit=limit, max_attempts=100, backoff=[0.1], overrun=overrun)
        assert service.limit == 0
    return {name: site.services[name] for name in LIMITS}


async def test_a_service_never_has_more_calls_than_its_limit(
    site: Site, counted: dict[str, SimulatedService], capsys: pytest.CaptureFixture[str]
) -> None:
    """64 users want everything at once. Whoever calls is stopped for several leases and goes on,
    is killed, or loses its index, while a limit goes down and up."""
    api = await site.serve()
    others = [await site.dispatch() for _ in range(3)] if site.clustered else []
    caller = await site.caller(api)
    for name in LIMITS:
        wishes = [{"feature_name": name, "user_id": f"u{n}"} for n in range(USERS)]
        await caller.http.post("/api/v1/jobs:batch", json={"jobs": wishes})
    four = counted["four"]
    await four.until(lambda it: it.running == 4)
    if site.clustered:
        api = await cluster_in_trouble(site, api, others, four)
    else:
        api = await process_in_trouble(site, api, four)
    async with caller.at(api) as again:
        admin = await site.admin(api)
        await admin.change("four", limit=2)
        await more_calls(four, 2)
        await admin.change("four", limit=4)
        await more_calls(four, 4)
        await cancel_the_rest(again)
        await nothing_left(again)
        assert (await listed(again, "completed"))["jobs"]
        for badly in ("failed", "dead"):
            assert not (await listed(again, badly))["jobs"]
    excess = {name: each.most - LIMITS[name] for name, each in counted.items()}
    calls = {name: len(each.calls) for name, each in counted.items()}
    with capsys.disabled():
        print(f"\ncalls: {calls}, excess: {excess}", end=" ")
    assert (counted["one"].most, four.most) == (1, 4)


async def process_in_trouble(site: Site, api: Running, four: SimulatedService) -> Running:
    """An embedded queue has one process."""
    api.signal(signal.SIGSTOP)
    await ended_calls(four, 4)
    api.signal(signal.SIGCONT)
    await more_calls(four, 4)
    await api.kill()
    return await site.serve()


async def cluster_in_trouble(
    site: Site, api: Running, others: list[Running], four: SimulatedService
) -> Running:
    """Two are stopped, two die, the index is wiped twice; two newcomers take over."""
    stopped, killed, _ = others
    for each in (stopped, api):
        each.signal(signal.SIGSTOP)
    await ended_calls(four, 4)
    await killed.kill()
    await flush(site.variables["REDIS_URL"])
    stopped.signal(signal.SIGCONT)
    await more_calls(four, 4)
    await api.kill()
    await asyncio.gather(site.dispatch(), more_calls(four, 4))
    await flush(site.variables["REDIS_URL"])
    return await site.serve()


async def ended_calls(service: SimulatedService, number: int) -> None:
    """Returns when so many calls more have ended: the time of one call, or more."""
    over = len(service.calls) - service.running + number
    await service.until(lambda it: len(it.calls) - it.running >= over)


async def more_calls(service: SimulatedService, number: int) -> None:
    least = len(service.calls) + number
    await service.until(lambda it: len(it.calls) >= least)


async def cancel_the_rest(caller: Caller) -> None:
    while True:
        found = (await listed(caller, "queued"))["jobs"]
        if not found:
            return
        for job in found:
            await caller.http.delete(f"/api/v1/jobs/{job['job_id']}")


async def nothing_left(caller: Caller) -> None:
    for job in (await listed(caller, "running"))["jobs"]:
        await caller.ended(job["job_id"])


async def listed(caller: Caller, state: str) -> Any:
    return (await caller.http.get("/api/v1/jobs", params={"status": state, "limit": 200})).json()
