"""The what-if route: how long jobs of the last hour would have waited with another limit."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import orjson

from fairlane.api.context import Here, RequestContext
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routing import Routes
from fairlane.api.schemas import serializers
from fairlane.api.schemas.dashboard import WHAT_IF, WhatIfRequest, WhatIfResponse
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.ledger.messages import Filter
from fairlane.model.catalog_text import catalog_text
from fairlane.model.job import Job, fair_user
from fairlane.units import SECOND

routes = Routes("administration")

PROGRAM = (sys.executable, "-m", "fairlane.simulate.what_if")
"""Another process: the simulation must not hold up requests."""

TIME_LIMIT_SECONDS = 2.0
HOUR_MICROSECONDS = 3_600 * SECOND
MAX_ARRIVALS, PAGE = 2_000, 500
SEED = 1
NOTE = (
    "the jobs of the last hour ({arrivals}, at most {most}), each as long as a job of its model "
    "usually is; the two limits serve the same jobs at the same times"
)
_one_at_a_time = asyncio.Semaphore(1)


@routes.add("POST", "/admin/simulate", "admin", example=WHAT_IF, problems=(404,))
async def simulate_limit(call: Here, body: WhatIfRequest) -> TypedResponse[WhatIfResponse]:
    """Simulate the jobs of the last hour with another limit of a service. One simulation runs at a
    time, for two seconds at most."""
    if not call.engine.catalog.knows(body.service):
        raise ProblemDetails(404, "not_found", f'no service "{body.service}"')
    if _one_at_a_time.locked():
        raise _busy("another simulation is running; try again in a moment")
    try:
        async with _one_at_a_time, asyncio.timeout(TIME_LIMIT_SECONDS):
            arrivals = await _arrivals(call, body.service)
            found = await _run(call, body, arrivals)
    except TimeoutError:
        raise _busy(
            f"the simulation took longer than {TIME_LIMIT_SECONDS:g} s; try a limit that is nearer "
            "to the present one"
        ) from None
    span = (arrivals[0][0] - arrivals[-1][0]) / SECOND
    note = NOTE.format(arrivals=len(arrivals), most=MAX_ARRIVALS)
    return serializers.answer(
        {
            "today": found["today"],
            "then": found["then"],
            "arrivals": len(arrivals),
            "seconds_simulated": round(span, 1),
            "seed": SEED,
            "note": note,
        }
    )


async def _arrivals(call: RequestContext, service: str) -> list[tuple[Any, ...]]:
    """The jobs of all tenants that need the service and were submitted in the last hour, newest
    first: arrival, user, tier, model, duration and load time of each."""
    engine = call.engine
    since = engine.clock.now() - HOUR_MICROSECONDS
    report = await engine.model_report(service)
    loads = {each.model: each.load for each in report.times}
    found: list[tuple[Any, ...]] = []
    after = None
    while len(found) < MAX_ARRIVALS:
        page = await engine.list_jobs(Filter(), after, PAGE)
        for job in page.jobs:
            if job.created_at >= since and not job.fan_out and _needs(job, service):
                user = fair_user(job.tenant, job.user, job.key)
                usual = round(engine.monitor.usual_seconds(service, job.model) * SECOND)
                found.append(
                    (job.created_at, user, job.tier, job.model, usual, loads.get(job.model))
                )
        after = page.next
        if after is None or page.jobs[-1].created_at < since:
            break
    if not found:
        raise ProblemDetails(404, "not_found", f"no job of {service} arrived in the last hour")
    return found[:MAX_ARRIVALS]


def _needs(job: Job, service: str) -> bool:
    return any(step.service == service for step in job.plan)


async def _run(call: RequestContext, body: WhatIfRequest, arrivals: list[tuple[Any, ...]]) -> Any:
    question = {
        "catalog": catalog_text(call.engine.catalog),
        "service": body.service,
        "limit": min(body.limit, len(arrivals)),  # more slots than jobs change nothing
        "arrivals": arrivals,
    }
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        answer, _ = await process.communicate(orjson.dumps(question))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ProblemDetails(422, "invalid_input", "these settings cannot be simulated")
    return orjson.loads(answer)


def _busy(detail: str) -> ProblemDetails:
    return ProblemDetails(503, "busy", detail, headers={"Retry-After": "2"})
