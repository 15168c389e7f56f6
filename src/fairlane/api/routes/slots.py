"""Slots that callers hold themselves: wait for one, keep it, give it back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body
from starlette.responses import Response

from fairlane.api import show, task_shapes
from fairlane.api.door import Call, Here
from fairlane.api.own import check_own, checked
from fairlane.api.routes.jobs import Again, JobId
from fairlane.api.routes.submit import accepted, allowed_job, check_room
from fairlane.api.routing import Routes
from fairlane.api.task_shapes import SlotRequest
from fairlane.api.times import seconds
from fairlane.pull.slots import Held

routes = Routes("slots")

LeaseText = Annotated[str, Body(embed=True, max_length=64, pattern=r"^[A-Za-z0-9_\-]+$")]


@routes.add("POST", "/api/v1/slots", "client", gives=task_shapes.Slot, problems=(404, 410))
async def ask_for_slot(call: Here, wish: SlotRequest, key: Again = None) -> Response:
    """Stands in line like any job, and answers when the slot is the caller's or the time is over;
    with `slot_id` it goes on waiting."""
    if wish.slot_id is None:
        call.door.slots.check(wish.service)
        job = await allowed_job(call.door, call.identity, wish, key, None)
        check_room(call.door, call.identity, job)
        slot_id = (await accepted(call.door, call.identity, job)).job
    else:
        slot_id = wish.slot_id
        await check_own(call.door, call.identity, slot_id)
    held = await call.door.slots.wait(slot_id, call.tenant, wish.wait_seconds)
    return show.answer(await _shown(call, held))


@routes.add(
    "POST",
    "/api/v1/slots/{job_id}/renew",
    "client",
    gives=task_shapes.SlotKept,
    problems=(404, 409, 410),
)
async def renew_slot(call: Here, job_id: JobId, lease: LeaseText) -> Response:
    """The slot stays the caller's for another `lease_seconds`."""
    await call.door.slots.renew(checked(job_id), call.tenant, lease)
    return show.answer({"slot_id": job_id, "lease_seconds": seconds(call.door.slots.lease)})


@routes.add(
    "POST",
    "/api/v1/slots/{job_id}/release",
    "client",
    gives=task_shapes.SlotKept,
    problems=(404, 409, 410),
)
async def release_slot(call: Here, job_id: JobId, lease: LeaseText) -> Response:
    """The slot is somebody else's now."""
    await call.door.slots.release(checked(job_id), call.tenant, lease)
    return show.answer({"slot_id": job_id, "lease_seconds": 0})


async def _shown(call: Call, held: Held) -> dict[str, Any]:
    placed = await call.engine.standing(held.job) if held.lease is None else None
    return {
        "slot_id": held.job.id,
        "status": held.job.state,
        "lease": held.lease,
        "lease_seconds": seconds(call.door.slots.lease),
        "position": placed.position if placed else None,
        "eta": show.eta(placed.eta) if placed else None,
    }
