"""The HTTP routes of the API, in groups."""

from fairlane.api.routes import (
    admin,
    api_keys,
    celery_queues,
    dead_letters,
    events,
    fanout_executions,
    generation,
    generation_queue,
    job_result,
    jobs,
    skips_and_credits,
    slots,
    status,
    submit,
    tasks,
    webhooks,
    websocket,
    workers,
)

GROUPS = [
    submit.routes,
    jobs.routes,
    job_result.routes,
    events.routes,
    websocket.routes,
    fanout_executions.routes,
    skips_and_credits.routes,
    status.routes,
    celery_queues.routes,
    admin.routes,
    dead_letters.routes,
    api_keys.routes,
    webhooks.routes,
    tasks.routes,
    workers.routes,
    slots.routes,
    generation.routes,
    generation_queue.routes,
]

__all__ = ["GROUPS"]
