"""Routes of Celery queues: their loads."""

from __future__ import annotations

from fairlane.api.context import Here
from fairlane.api.http.problem_details import ProblemDetails
from fairlane.api.routing import Routes
from fairlane.api.schemas import examples, serializers
from fairlane.api.schemas.serializers import TypedResponse
from fairlane.responses import CeleryQueueResponse, CeleryQueuesResponse

routes = Routes("celery")


@routes.add("GET", "/api/v1/celery/queues", "read", example=examples.CELERY_QUEUES, problems=(404,))
async def celery_queues(call: Here) -> TypedResponse[CeleryQueuesResponse]:
    """List the balanced queues of a Celery app, in the order of their index, and the fair queue:
    waiting and running tasks."""
    source = call.app_context.celery
    if not source.is_configured:
        raise ProblemDetails(404, "not_found", "no Celery queues: celery.redis_url is not set")
    queues: list[CeleryQueueResponse] = [
        {"name": name, "pending": load.pending, "running": load.running}
        for name, load in (await source.read()).items()
    ]
    return serializers.answer({"queues": queues})
