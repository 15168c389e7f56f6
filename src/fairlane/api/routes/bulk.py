"""Bulk routes: preview an action on all jobs that match a filter, confirm it, and follow it."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, cast

from fastapi import Path

from fairlane.api.bulk_actions import SAMPLE, BulkAction
from fairlane.api.context import Here, RequestContext
from fairlane.api.routes.jobs import states
from fairlane.api.routing import Routes
from fairlane.api.schemas import serializers
from fairlane.api.schemas.dashboard import (
    BULK_PREVIEW,
    BULK_STATUS,
    BulkFilter,
    BulkPreviewResponse,
    BulkRequest,
    BulkStatusResponse,
)
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.timestamps import iso
from fairlane.ledger.messages import Filter

routes = Routes("bulk actions")

BulkId = Annotated[str, Path(max_length=64, examples=["b7f3a9c2e1d04f58"])]


@routes.add("POST", "/admin/bulk/preview", "admin", example=BULK_PREVIEW)
async def preview_bulk(call: Here, body: BulkRequest) -> TypedResponse[BulkPreviewResponse]:
    """Preview an action on all jobs that match a filter, up to 10,000. Nothing changes. The preview
    can be confirmed for five minutes."""
    wanted = _filter(call, body.filter)
    found = await call.app_context.bulk_actions.preview(body.action, wanted, call.actor)
    now = call.engine.clock.now()
    return serializers.answer(
        {
            "bulk_id": found.id,
            "count": len(found.jobs),
            "exact": found.is_exact,
            "by_state": dict(Counter(str(job.state) for job in found.jobs)),
            "sample": [
                serializers.job(job, waited=job.waited_until(now)) for job in found.jobs[:SAMPLE]
            ],
            "left_out": [
                {"reason": reason, "count": count} for reason, count in found.left_out.items()
            ],
            "expires_at": iso(found.until),
        }
    )


@routes.add(
    "POST", "/admin/bulk/{bulk_id}", "admin", example=BULK_STATUS, status=202, problems=(404,)
)
async def confirm_bulk(call: Here, bulk_id: BulkId) -> TypedResponse[BulkStatusResponse]:
    """Execute a preview, once. Jobs that changed since are left alone and counted."""
    bulk = await call.app_context.bulk_actions.confirm(bulk_id, call.tenant)
    return serializers.answer(_status(bulk), 202)


@routes.add("GET", "/admin/bulk/{bulk_id}", "admin", example=BULK_STATUS, problems=(404,))
async def get_bulk(call: Here, bulk_id: BulkId) -> TypedResponse[BulkStatusResponse]:
    """Get how far a bulk action is. One whose server ended is marked as interrupted after 30 s."""
    return serializers.answer(
        _status(await call.app_context.bulk_actions.get(bulk_id, call.tenant))
    )


def _filter(call: RequestContext, chosen: BulkFilter) -> Filter:
    return Filter(
        call.tenant,
        chosen.user_id,
        states(chosen.status),
        chosen.feature_name,
        chosen.tag,
        service=chosen.service,
        region=chosen.region,
        tier=chosen.tier,
        model=chosen.model,
    )


def _status(bulk: BulkAction) -> BulkStatusResponse:
    return cast(
        "BulkStatusResponse",
        {
            "bulk_id": bulk.id,
            "status": bulk.status,
            "count": bulk.count,
            "done": bulk.done,
            "changed": bulk.changed,
            "skipped": bulk.skipped,
            "failed": bulk.failed,
        },
    )
