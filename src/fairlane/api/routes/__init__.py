"""Every route of the API."""

from fairlane.api.routes import (
    administration,
    dead,
    events,
    executions,
    jobs,
    keys,
    payment,
    slots,
    status,
    submit,
    tasks,
    webhooks,
    workers,
)

GROUPS = [
    submit.routes,
    jobs.routes,
    events.routes,
    executions.routes,
    payment.routes,
    status.routes,
    administration.routes,
    dead.routes,
    keys.routes,
    webhooks.routes,
    tasks.routes,
    workers.routes,
    slots.routes,
]

__all__ = ["GROUPS"]
