"""Every route of the API."""

from fairlane.api.routes import (
    administration,
    dead,
    events,
    executions,
    jobs,
    keys,
    payment,
    status,
    submit,
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
]

__all__ = ["GROUPS"]
