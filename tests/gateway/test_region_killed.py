"""Three regions under a provider's limit of 10. One is killed in the middle of 500 jobs, and comes
back: none is lost, what may move moves, what may not waits."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairlane.api.schemas.timestamps import iso
from fairlane.clock import SystemClock
from fairlane.demo.processes import free_port
from fairlane.units import SECOND
from tests.cluster.fleet import comes_true
from tests.gateway.site import Caller, Site

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
REGIONS = ("US", "EU", "ASIA")
PROVIDER_LIMIT = 10
CALL_SECONDS, TIMEOUT_SECONDS = 0.1, 4
KINDS: tuple[tuple[str, ...], ...] = ((), ("US",), ("EU", "US"), (), ("EU",), (), ("ASIA",), ())
JOBS = 500
BEFORE_THE_KILL = 60
LONGEST_SECONDS = 200.0


class ProviderCall(NamedTuple):
    region: str
    job: str


class Provider:
    """What the three regions have in common. Every running call holds a connection to it, so it
    counts by itself; the calls of a killed region end with their process."""

    def __init__(self) -> None:
        self.calls: list[ProviderCall] = []
        self.running = self.most = 0
        self.port = 0

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[Provider]:
        server = await asyncio.start_server(self._hear, "127.0.0.1", 0)
        async with server:
            self.port = server.sockets[0].getsockname()[1]
            yield self

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = ProviderCall(**json.loads(await reader.readline()))
        self.calls.append(call)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            writer.write(b"go on\n")
            await reader.read()
        except ConnectionError:
            pass
        finally:
            self.running -= 1
            writer.close()

    def seen(self, region: str) -> int:
        return sum(call.region == region for call in self.calls)


class Fleet:
    """The processes of the regions."""

    def __init__(self, provider: Provider, stack: AsyncExitStack) -> None:
        self._provider, self._stack = provider, stack
        self.ports = {region: free_port(0) for region in REGIONS}
        self._processes: dict[str, Process] = {}

    async def start(self, region: str) -> None:
        numbers = (self.ports[region], self._provider.port, CALL_SECONDS)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.gateway.region_service", region, *map(str, numbers),
            cwd=ROOT, stdout=PIPE,
        )  # fmt: skip
        self._processes[region] = process
        self._stack.push_async_callback(self.kill, region)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"

    async def kill(self, region: str) -> None:
        process = self._processes.pop(region, None)
        if process is not None:
            process.kill()
            await process.communicate()


@pytest.fixture
async def regions_site(
    mode: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Site]:
    from tests.gateway.conftest import opened

    async with AsyncExitStack() as stack:
        yield await opened(mode, tmp_path, request, stack, "regions")


def configure(site: Site, ports: dict[str, int]) -> None:
    """The preset with other ports and shorter times."""
    file = site.folder / "fairlane.toml"
    text = file.read_text()
    for n, region in enumerate(REGIONS, 1):
        text = text.replace(f"http://127.0.0.1:900{n}", f"http://127.0.0.1:{ports[region]}")
    text = text.replace("backoff = [60, 120, 180]", "backoff = [1]")
    file.write_text(text)
    site.set("services.inference", timeout=TIMEOUT_SECONDS)


async def test_a_region_is_killed_in_the_middle_of_500_jobs(
    regions_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """I1, I7, I8, I18: none lost, never more than 10 calls, and each where it may run."""
    site = regions_site
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(Provider().counting())
        fleet = Fleet(provider, stack)
        for region in REGIONS:
            await fleet.start(region)
        configure(site, fleet.ports)
        api = await site.serve()
        if site.clustered:
            await site.dispatch()
        caller, admin = await site.caller(api), await site.admin(api)
        allowed = await submitted(caller)

        await comes_true(lambda: is_true(len(provider.calls) >= BEFORE_THE_KILL))
        await fleet.kill("US")
        await comes_true(lambda: all_ended(caller, "free"))
        waiting = await listed(caller, "only-US", "queued")
        assert waiting, "everything of US had ended before the kill"
        told = (await caller.http.get(f"/api/v1/jobs/{waiting[-1]['job_id']}/explain")).json()
        codes = {reason["code"] for reason in told["reasons"]}
        assert {"closed", "region"} <= codes, told
        status = (await admin.http.get("/queue/status")).json()
        assert status["regions"]["US"]["health"] == "failing"
        assert status["regions"]["EU"]["health"] == "healthy"

        before = provider.seen("US")
        back_at = SystemClock().now()
        await fleet.start("US")
        await comes_true(lambda: is_true(provider.seen("US") > before))
        took = (SystemClock().now() - back_at) / SECOND
        await comes_true(lambda: all_ended(caller, "only-US"), LONGEST_SECONDS)

        jobs = await listed(caller, None, "completed")
        assert {job["job_id"] for job in jobs} == set(allowed), "a job was lost"
        assert provider.most <= PROVIDER_LIMIT
        moved = await check_records(caller, jobs, allowed, provider, back_at)
        with capsys.disabled():
            print(
                f"\n{len(jobs)} jobs, at most {provider.most} calls, {moved} retries left US, "
                f"work was back after {took:.1f} s",
                end=" ",
            )


async def submitted(caller: Caller) -> dict[str, tuple[str, ...]]:
    """The jobs, and where each may run; none = anywhere."""
    wanted = [KINDS[n % len(KINDS)] for n in range(JOBS)]
    asked = [
        {
            "feature_name": "inference",
            "input_data": {"n": n},
            "regions": list(regions),
            "user_id": f"user-{n % 7}",
            "tags": ["only-US" if regions == ("US",) else "free"],
        }
        for n, regions in enumerate(wanted)
    ]
    answer = await caller.http.post("/api/v1/jobs:batch", json={"jobs": asked})
    assert answer.status_code == 200, answer.text
    made = [each["job"]["job_id"] for each in answer.json()["results"]]
    return dict(zip(made, wanted, strict=True))


async def is_true(value: bool) -> bool:
    return value


async def listed(caller: Caller, tag: str | None, *statuses: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    asked: dict[str, Any] = {"status": ",".join(statuses), "limit": 200}
    if tag is not None:
        asked["tag"] = tag
    while True:
        page = (await caller.http.get("/api/v1/jobs", params=asked)).json()
        found += page["jobs"]
        if page["next"] is None:
            return found
        asked["cursor"] = page["next"]


async def all_ended(caller: Caller, tag: str) -> bool:
    return not await listed(caller, tag, "queued", "running")


async def check_records(
    caller: Caller,
    jobs: list[dict[str, Any]],
    allowed: dict[str, tuple[str, ...]],
    provider: Provider,
    back_at: int,
) -> int:
    """The record of where each attempt ran is what the provider saw. Returns how many attempts at
    US were repeated elsewhere."""
    tried = {}
    moved = 0
    for job in jobs:
        path = f"/api/v1/jobs/{job['job_id']}/attempts"
        attempts = (await caller.http.get(path)).json()["attempts"]
        regions = [each["region"] for each in attempts]
        tried[job["job_id"]] = set(regions)
        assert set(regions) <= set(allowed[job["job_id"]] or REGIONS), attempts
        assert attempts[-1]["outcome"] == "completed", attempts
        seen = await caller.job(job["job_id"])
        assert (
            seen["region"] == regions[-1] == seen["context"]["step_0_inference"]["data"]["region"]
        )
        for earlier, later in pairwise(attempts):
            assert earlier["outcome"] == "failed", attempts
            assert earlier["region"] == "US", attempts
            assert earlier["started_at"] < iso(back_at), attempts
            moved += later["region"] != "US"
    for call in provider.calls:
        assert call.region in tried[call.job], call
    assert moved > 0
    return moved
