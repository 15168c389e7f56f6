"""The three flows of a job over regions, over real HTTP: a new job, a retry that its user asks for,
and an automatic retry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlane.demo.services import SimulatedService
from tests.cluster.fleet import comes_true
from tests.gateway.conftest import opened
from tests.gateway.site import Caller, Site

REGIONS = ("US", "EU", "ASIA")


class Regions:
    """The preset "regions" with a simulated service in each region."""

    def __init__(self, site: Site, services: dict[str, SimulatedService]) -> None:
        self.site, self.services = site, services


@pytest.fixture
async def regions(
    mode: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Regions]:
    async with AsyncExitStack() as stack:
        site = await opened(mode, tmp_path, request, stack, "regions")
        services = {}
        for region in REGIONS:
            service = SimulatedService(region, 4)
            services[region] = await stack.enter_async_context(service.serving())
            site.set(f"services.inference.regions.{region}", url=service.url)
        site.set("services.inference", backoff=[0.2], retry_on=[500])
        yield Regions(site, services)


async def attempts(caller: Caller, job: str) -> list[tuple[str, str]]:
    found = (await caller.http.get(f"/api/v1/jobs/{job}/attempts")).json()["attempts"]
    return [(each["region"], each["outcome"]) for each in found]


async def test_a_new_job_runs_in_a_region_and_its_record_says_where(regions: Regions) -> None:
    api = await regions.site.serve()
    caller = await regions.site.caller(await regions.site.other_door(api))
    accepted = await caller.submit("inference", input_data={"question": "why?"}, user_id="ada")
    job = await caller.ended(accepted["job_id"])
    assert (job["status"], job["region"]) == ("completed", "US")
    assert await attempts(caller, job["job_id"]) == [("US", "completed")]
    told = [(e["type"], e["data"].get("region")) async for e in caller.events(job["job_id"])]
    assert told[:2] == [("WAITING", None), ("STEP_START", "US")]
    (call,) = regions.services["US"].calls
    assert (call.job, call.params) == (job["job_id"], {"question": "why?"})
    admin = await regions.site.admin(api)
    stats = (await admin.http.get("/admin/runtime/stats")).json()
    assert stats == {"main": 0, "retry": 0, "dead": 0}


async def test_a_user_retries_one_question_and_it_stays_in_its_region(regions: Regions) -> None:
    api = await regions.site.serve()
    caller = await regions.site.caller(api)
    america = regions.services["US"]
    america.switches.status = 400
    matrix = {"question": ["why?", "how?"], "region": ["US", "EU"]}
    job = (await caller.submit("inference", input_data={}, matrix=matrix))["job_id"]
    ended = await caller.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "CELLS_FAILED")
    cells = await executions(caller, job)
    failed = [cell for cell in cells if cell["status"] == "failed"]
    assert {cell["region"] for cell in failed} == {"US"}
    assert [cell["region"] for cell in cells if cell["status"] == "completed"] == ["EU", "EU"]
    america.switches.status = 0
    one = failed[0]["execution_id"]
    retried = await caller.http.post(f"/api/v1/executions/{one}/retry-question")
    assert (retried.status_code, retried.json()["retry_count"]) == (202, 1)

    async def is_done() -> bool:
        cell = (await caller.http.get(f"/api/v1/executions/{one}")).json()
        return bool(cell["status"] == "completed")

    await comes_true(is_done)
    cell = (await caller.http.get(f"/api/v1/executions/{one}")).json()
    assert (cell["region"], cell["attempts"]) == ("US", 2)
    assert cell["cell"] == failed[0]["cell"]


async def executions(caller: Caller, job: str) -> list[dict[str, Any]]:
    return list((await caller.http.get(f"/api/v1/jobs/{job}/executions")).json()["executions"])


async def test_an_automatic_retry_leaves_the_region_and_ends_as_a_dead_letter(
    regions: Regions,
) -> None:
    """503: the region is unavailable, and the retry leaves it at once. 500, which is retried here:
    each attempt is in another region than the one before; after three the job is dead."""
    api = await regions.site.serve()
    caller, admin = await regions.site.caller(api), await regions.site.admin(api)
    regions.services["US"].switches.status = 503
    first = await caller.ended((await caller.submit("inference"))["job_id"])
    assert (first["status"], first["region"]) == ("completed", "EU")
    assert await attempts(caller, first["job_id"]) == [("US", "failed"), ("EU", "completed")]
    for service in regions.services.values():
        service.switches.status = 500
    job = (await caller.submit("inference"))["job_id"]
    second = await caller.ended(job)
    assert (second["status"], second["error"]["code"]) == ("dead", "MAX_ATTEMPTS")
    tried = [region for region, _ in await attempts(caller, job)]
    assert len(tried) == 3
    assert tried[0] != tried[1] != tried[2]
    stats = (await admin.http.get("/admin/runtime/stats")).json()
    assert stats == {"main": 0, "retry": 0, "dead": 1}
    for service in regions.services.values():
        service.switches.status = 0
    theirs = await regions.site.caller(api, role="admin")
    path, wanted = "/admin/queue-dead/replay", {"region": tried[2], "service": "inference"}
    preview = (await theirs.http.post(path, json={"filter": wanted, "preview": True})).json()
    assert [each["job_id"] for each in preview["would_run"]] == [job]
    assert preview["would_run"][0]["runnable"] is True
    elsewhere = {"filter": {**wanted, "region": tried[1]}}
    assert (await theirs.http.post(path, json=elsewhere)).json()["count"] == 0
    assert (await theirs.http.post(path, json={"filter": wanted})).json()["count"] == 1
    assert (await caller.ended(job))["status"] == "completed"
