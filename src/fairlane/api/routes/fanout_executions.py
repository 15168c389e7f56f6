"""Execution routes: the child jobs of a fan-out, one for every combination of its matrix."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import Header, Query
from starlette.responses import PlainTextResponse

from fairlane.api.auth.ownership import checked
from fairlane.api.context import Here, RequestContext
from fairlane.api.csv_page import CSV, csv_page
from fairlane.api.http.problem_details import no_job
from fairlane.api.pagination import cursor, read_cursor
from fairlane.api.routes.jobs import (
    Cursor,
    IdempotencyKey,
    JobId,
    Limit,
    Statuses,
    operation,
    states,
)
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.ledger.messages import Filter
from fairlane.model.job import Job
from fairlane.responses import (
    ExecutionPageResponse,
    ExecutionResponse,
    RetryFailedResponse,
    RetryResponse,
)

routes = Routes("executions")

FIELDS = ("execution_id", "job_id", "status", "region", "attempts", "result")
CELL = "cell."
"""The prefix of a CSV column whose axis has the name of a field."""

MAX_PAGE_BYTES = 8 << 20
"""A page ends early when its results reach this many bytes."""


@routes.add(
    "GET",
    "/api/v1/jobs/{job_id}/executions",
    "read",
    example=examples.EXECUTION_PAGE,
    texts={CSV: examples.EXECUTION_CSV},
    problems=(404, 410),
)
async def list_executions(
    call: Here,
    job_id: JobId,
    status: Statuses = None,
    cursor_: Annotated[Cursor, Query(alias="cursor")] = None,
    limit: Limit = 50,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> TypedResponse[ExecutionPageResponse] | PlainTextResponse:
    """List the executions of a fan-out, newest first, as JSON or with `Accept: text/csv`. A page
    ends early when its results reach 8 MiB."""
    parent = await call.engine.get(checked(job_id), call.tenant)
    wanted = Filter(call.tenant, parent=parent.id, states=states(status))
    listing = orjson.dumps(list(wanted)).decode()
    after = read_cursor(call.app_context.signer, listing, cursor_)
    found = await call.engine.list_jobs(wanted, after, limit)
    executions: list[ExecutionResponse] = []
    size = 0
    for cell in found.jobs:
        executions.append(await _response(call, cell))
        size += len(orjson.dumps(executions[-1]["result"]))
        if size >= MAX_PAGE_BYTES:
            break
    last = found.jobs[len(executions) - 1].id if len(executions) < len(found.jobs) else found.next
    following = cursor(call.app_context.signer, listing, last)
    if CSV in accept:
        return _csv(executions, following)
    return serializers.answer({"executions": executions, "next": following})


@routes.add(
    "GET",
    "/api/v1/executions/{execution_id}",
    "read",
    example=examples.EXECUTION,
    problems=(404, 410),
)
async def get_execution(call: Here, execution_id: JobId) -> TypedResponse[ExecutionResponse]:
    """Get one execution with its result."""
    return serializers.answer(await _response(call, await _cell(call, execution_id)))


@routes.add(
    "POST",
    "/api/v1/executions/{execution_id}/retry-question",
    "client",
    example=examples.RETRIED,
    status=202,
    problems=(404, 409, 410),
)
async def retry_execution(
    call: Here, execution_id: JobId, key: IdempotencyKey = None
) -> TypedResponse[RetryResponse]:
    """Run a failed execution again, with all its attempts. A fan-out that has ended runs again."""
    before = await _cell(call, execution_id)
    await call.engine.retry(before.id, call.tenant, operation(call, key))
    cell = await call.engine.get(before.id, call.tenant)
    return serializers.answer(
        {"execution_id": cell.id, "status": cell.state, "retry_count": before.fence}, 202
    )


@routes.add(
    "POST",
    "/api/v1/jobs/{job_id}/retry-failed",
    "client",
    example=examples.RETRIED_FAILED,
    status=202,
    problems=(404, 409, 410),
)
async def retry_failed_executions(
    call: Here, job_id: JobId, key: IdempotencyKey = None
) -> TypedResponse[RetryFailedResponse]:
    """Run all failed and dead executions of a fan-out again, with all their attempts, while it runs
    or after it has ended. Sent again with the same key, it queues none and counts 0."""
    again = await call.engine.retry_failed(checked(job_id), call.tenant, operation(call, key))
    job = await call.engine.get(job_id, call.tenant)
    return serializers.answer({"job_id": job.id, "status": job.state, "count": len(again)}, 202)


async def _cell(call: RequestContext, execution_id: str) -> Job:
    cell = await call.engine.get(checked(execution_id), call.tenant)
    if cell.parent is None:
        raise no_job(execution_id)
    return cell


async def _response(call: RequestContext, cell: Job) -> ExecutionResponse:
    _, context = await call.engine.payload(cell.id)
    return serializers.execution(cell, context)


def _csv(rows: list[ExecutionResponse], following: str | None) -> PlainTextResponse:
    axes = sorted({axis for row in rows for axis in row["cell"]})
    names = _names(axes)
    columns = ["execution_id", "job_id", *names.values(), *FIELDS[2:]]
    flat = (
        {names[axis]: value for axis, value in row["cell"].items()}
        | {**row, "result": orjson.dumps(row["result"]).decode()}
        for row in rows
    )
    return csv_page(columns, flat, following)


def _names(axes: list[str]) -> dict[str, str]:
    """Returns the CSV column of each axis. Column names are unique."""
    names: dict[str, str] = {}
    for axis in axes:
        name = axis
        while name in FIELDS or name in names.values():
            name = f"{CELL}{name}"
        names[axis] = name
    return names
