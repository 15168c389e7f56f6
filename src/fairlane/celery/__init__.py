"""Least loaded queues and fair queueing for existing Celery apps. Needs the extra `celery`.

`app.conf.task_routes = (fairlane.celery.balanced(app, queues=20),)` is all that an app needs.
Importing this package does not import Celery; its calls do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlane.celery.calls import (
        apply_fair,
        balanced_group,
        enqueue_balanced,
        enqueue_fair,
        enqueue_for_user,
    )
    from fairlane.celery.router import balanced

__all__ = [
    "apply_fair",
    "balanced",
    "balanced_group",
    "enqueue_balanced",
    "enqueue_fair",
    "enqueue_for_user",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "router" if name == "balanced" else "calls"
    return getattr(import_module(f"fairlane.celery.{module}"), name)
