"""Routes of caller-held slots (leases on capacity): acquire, renew and release."""

from __future__ import annotations

from fairlane.api.auth.ownership import check_own, checked
from fairlane.api.context import Here, RequestContext
from fairlane.api.routes.jobs import IdempotencyKey, JobId
from fairlane.api.routes.submit import allowed_job, check_tier
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.api.schemas.task_requests import SlotLeaseRequest, SlotRequest
from fairlane.api.schemas.timestamps import seconds
from fairlane.responses import SlotRenewedResponse, SlotResponse
from fairlane.worker_protocol.caller_slots import HeldSlot

routes = Routes("slots")


@routes.add("POST", "/api/v1/slots", "client", example=examples.SLOT, problems=(404, 410))
async def ask_for_slot(
    call: Here, body: SlotRequest, key: IdempotencyKey = None
) -> TypedResponse[SlotResponse]:
    """Wait for a slot (long poll). The slot is queued like a job. The response comes when the
    caller holds the slot, or after `wait_seconds`. With `slot_id` the wait continues."""
    if body.slot_id is None:
        call.app_context.slots.check(body.service)
        job = await allowed_job(call.app_context, call.identity, body, key, None)
        async with call.app_context.limiter.place() as place:
            check_tier(call.app_context, call.identity, job, place)
            slot_id = (await call.engine.submit(job, call.identity.caller)).job
    else:
        slot_id = body.slot_id
        await check_own(call.app_context, call.identity, slot_id)
    held = await call.app_context.slots.wait(slot_id, call.tenant, body.wait_seconds)
    return serializers.answer(await _response(call, held))


@routes.add(
    "POST",
    "/api/v1/slots/{job_id}/renew",
    "client",
    example=examples.SLOT_RENEWED,
    problems=(404, 409, 410),
)
async def renew_slot(
    call: Here, job_id: JobId, body: SlotLeaseRequest
) -> TypedResponse[SlotRenewedResponse]:
    """Renew the lease of a slot for another `lease_seconds`."""
    await call.app_context.slots.renew(checked(job_id), call.tenant, body.lease)
    return serializers.answer(
        {"slot_id": job_id, "lease_seconds": seconds(call.app_context.slots.lease)}
    )


@routes.add(
    "POST",
    "/api/v1/slots/{job_id}/release",
    "client",
    example=examples.SLOT_RELEASED,
    problems=(404, 409, 410),
)
async def release_slot(
    call: Here, job_id: JobId, body: SlotLeaseRequest
) -> TypedResponse[SlotRenewedResponse]:
    """Release a slot, so that the next caller can have it."""
    await call.app_context.slots.release(checked(job_id), call.tenant, body.lease)
    return serializers.answer({"slot_id": job_id, "lease_seconds": 0})


async def _response(call: RequestContext, held: HeldSlot) -> SlotResponse:
    placed = await call.engine.standing(held.job) if held.lease is None else None
    return {
        "slot_id": held.job.id,
        "status": held.job.state,
        "lease": held.lease,
        "lease_seconds": seconds(call.app_context.slots.lease),
        "position": placed.position if placed else None,
        "eta": serializers.eta(placed.eta) if placed else None,
    }
