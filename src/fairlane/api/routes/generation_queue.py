"""Routes of the generation queue as a whole: a caller's own jobs, the queue of a service with the
jobs of others as anonymous rows, and the state of its scheduler."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import Query

from fairlane.api.context import Here, RequestContext
from fairlane.api.pagination import cursor, read_cursor
from fairlane.api.routes.jobs import Cursor
from fairlane.api.routes.submit import not_allowed
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, generation, serializers
from fairlane.api.schemas.generation_requests import GENERATE
from fairlane.api.schemas.requests import Name, User
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.engine.model_times import MAX_MODELS
from fairlane.engine.queries import unplaced
from fairlane.errors import UnknownName
from fairlane.index.index import ModelReport
from fairlane.ledger.messages import Filter
from fairlane.model.job import Job
from fairlane.model.key import Role
from fairlane.model.state import State
from fairlane.model.step import Lane
from fairlane.model.worker import Loaded
from fairlane.responses import (
    GenerationSummaryResponse,
    LoadedModelResponse,
    OwnQueueResponse,
    QueueRowResponse,
    ServiceQueueResponse,
    StatusResponse,
)

routes = Routes("generation")

MAX_ROWS = 100

Limit = Annotated[int, Query(ge=1, le=MAX_ROWS)]
UserId = Annotated[
    User | None, Query(description="Only jobs of this user are the caller's. Needs `act_as`.")
]
ServiceName = Annotated[
    Name | None, Query(description="The service `generate`, or the first of that pipeline.")
]


@routes.add("GET", "/queue-status", "read", example=examples.OWN_QUEUE)
async def own_queue(
    call: Here,
    user_id: UserId = None,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
    limit: Limit = 50,
) -> TypedResponse[OwnQueueResponse]:
    """List the caller's own waiting and processing jobs in pages, newest first, each with its
    position. Of others only their number is told."""
    own = _own(call, user_id)
    live = own._replace(states=(State.QUEUED, State.RUNNING))
    listing = orjson.dumps(["queue-status", *live]).decode()
    after = read_cursor(call.app_context.signer, listing, cursor_)
    found = await call.engine.list_jobs(live, after, limit)
    running = await call.engine.running_jobs(own, 1)
    queued, _ = await call.engine.load()
    return serializers.answer(
        {
            "queue_length": queued,
            "current_job": running[0].id if running else None,
            "jobs": await _summaries(call, found.jobs),
            "next": cursor(call.app_context.signer, listing, found.next),
        }
    )


def _own(call: RequestContext, user_id: str | None) -> Filter:
    """Returns the filter for the caller's own jobs: its key's, the user's, or its tenant's."""
    if call.identity.acts_alone:
        if user_id is not None:
            raise not_allowed("user_id", "act_as")
        return Filter(call.tenant, key=call.identity.key)
    return Filter(call.tenant, user_id)


async def _summaries(call: RequestContext, jobs: list[Job]) -> list[GenerationSummaryResponse]:
    """Returns the jobs of a page: processing ones first, then by position, then the unknown."""
    places = await call.engine.placements(jobs)
    costs = await call.engine.skip_costs(jobs)
    rows = []
    for job in jobs:
        place = places.get(job.id) or unplaced(job.tier)
        rows.append(generation.summary(job, place.position, place.eta, costs.get(job.id)))
    last = float("inf")
    return sorted(rows, key=lambda row: last if row["position"] is None else row["position"])


@routes.add("GET", "/api/queue", "read", example=examples.SERVICE_QUEUE)
async def service_queue(
    call: Here, service: ServiceName = None, user_id: UserId = None, limit: Limit = 50
) -> TypedResponse[ServiceQueueResponse]:
    """Get the processing jobs of a service and the next ones in their order. Jobs that are not the
    caller's are anonymous rows, and those further back a number."""
    own = _own(call, user_id)
    name = _service(call, service)
    view = await call.engine.service_view(name, limit)
    rows = [_row(job, 0, own) for job in view.running]
    rows += [_row(job, place, own) for place, job in enumerate(view.waiting, 1)]
    return serializers.answer(
        {
            "service": name,
            "jobs": rows,
            "total": view.total,
            "not_shown": view.total - len(rows),
        }
    )


def _service(call: RequestContext, name: str | None) -> str:
    """Returns the service whose queue is shown. Raises UnknownName for one that the caller cannot
    have jobs in."""
    catalog = call.engine.catalog
    if name is None:
        name = catalog.pipelines.get(GENERATE, (GENERATE,))[0]
    if name not in catalog.services and name not in call.engine.task_types(call.tenant):
        raise UnknownName("service", name, catalog.services)
    return name


def _row(job: Job, position: int, own: Filter) -> QueueRowResponse:
    same_tenant = job.tenant == own.tenant
    is_own = same_tenant and own.user in (None, job.user) and own.key in (None, job.key)
    return generation.row(job, position, own=is_own, same_tenant=same_tenant)


# --- the scheduler -------------------------------------------------------------------------------
@routes.add("GET", "/status", "read", example=examples.STATUS)
async def scheduler_status(
    call: Here, service: ServiceName = None
) -> TypedResponse[StatusResponse]:
    """Get the state of the scheduler of a service: the model it used last, the expected wait of a
    new job by model and tier, the learnt times of models, and where they are loaded. Only admin
    keys are told models that no job of their tenant has used."""
    engine = call.engine
    name = _service(call, service)
    tenant = None if call.identity.role is Role.ADMIN else call.tenant
    report = await engine.model_report(name, tenant)
    jobs = await engine.running_jobs(Filter(tenant), MAX_ROWS, name)
    if tenant is not None:
        report = _without_foreign_models(report, jobs)
    workers = await _loaded(call, name, report, jobs)
    times = {each.model: each for each in report.times}
    known = dict.fromkeys([report.last.model, *(each["model"] for each in workers), *times])
    models = sorted([model for model in known if model][:MAX_MODELS])
    waits = await engine.expected_waits(name, models)
    by_tier = {tier: generation.waits(each) for tier, each in waits.items()}
    tiers = engine.catalog.tiers
    queued, running = await engine.load()
    return serializers.answer(
        {
            "service": name,
            "scheduler": generation.scheduler(engine.catalog.service(name), tiers, report.last),
            "estimated_wait": by_tier[tiers.default],
            "estimated_wait_by_tier": by_tier,
            "models": {model: generation.model_times(times[model]) for model in sorted(times)},
            "workers": workers,
            "queue_length": queued,
            "running": running,
        }
    )


def _without_foreign_models(report: ModelReport, running: list[Job]) -> ModelReport:
    """Returns the report without models that only other tenants have used. `running` are jobs of
    the caller's tenant."""
    own = {*(each.model for each in report.times), *(job.model for job in running)}
    return report._replace(
        last=report.last if report.last.model in own else Loaded(),
        slots=[each for each in report.slots if each.loaded.model in own],
        workers={worker: each for worker, each in report.workers.items() if each.model in own},
    )


async def _loaded(
    call: RequestContext, service: str, report: ModelReport, running: list[Job]
) -> list[LoadedModelResponse]:
    """Returns where models of a service are loaded: in the slots of a called service; otherwise in
    the workers that this process knows, and in those that run one of these jobs now."""
    if report.slots:
        return [
            generation.loaded(each.loaded, slot=f"{each.pool}/{each.n}") for each in report.slots
        ]
    lane = Lane(service)
    offering = {each.id for each, _ in await call.engine.workers.all() if each.covers(lane)}
    here = {worker: each for worker, each in report.workers.items() if worker in offering}
    elsewhere = [job for job in running if job.model and serializers.worker(job) not in here]
    return [
        *(generation.loaded(each, worker=worker) for worker, each in sorted(here.items())),
        *(generation.running_model(job) for job in elsewhere),
    ]
