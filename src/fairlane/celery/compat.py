"""The function names of hand-written load balancers, for apps that already call them. Counting is
automatic, so that the functions which count do nothing."""

from __future__ import annotations

import warnings
from typing import Any

from celery import current_app

from fairlane.celery.calls import enqueue_balanced, enqueue_for_user
from fairlane.celery.leases import Load
from fairlane.celery.reconciler import Reconciler
from fairlane.celery.router import Balancer, balancer_of


def select_best_queue() -> str:
    """The queue with the lowest load. Only looks: it reserves nothing."""
    balancer = _balancer()
    return balancer.leases.peek() or balancer.options.queues[0]


def get_all_queue_loads() -> dict[str, Load]:
    """`{queue: (pending, running)}`."""
    balancer = _balancer()
    return balancer.leases.loads(balancer.options.queues)


def get_queue_load(queue_name: str) -> Load:
    return _balancer().leases.loads([queue_name])[queue_name]


def reset_queue_counters(queue_name: str | None = None) -> None:
    """Forgets the leases of one queue or of all, and counts again what the broker holds."""
    Reconciler(_balancer()).reset(queue_name)


def enqueue_task_with_load_balancing(task: Any, *args: Any, **kwargs: Any) -> Any:
    return enqueue_balanced(task, *args, **kwargs)


def enqueue_task_to_user_queue(task: Any, user_id: object, *args: Any, **kwargs: Any) -> Any:
    return enqueue_for_user(task, user_id, *args, **kwargs)


def increment_pending(queue_name: str) -> None:
    _counted_elsewhere("increment_pending", queue_name)


def decrement_pending(queue_name: str) -> None:
    _counted_elsewhere("decrement_pending", queue_name)


def increment_running(queue_name: str) -> None:
    _counted_elsewhere("increment_running", queue_name)


def decrement_running(queue_name: str) -> None:
    _counted_elsewhere("decrement_running", queue_name)


def _counted_elsewhere(name: str, queue: str) -> None:
    warnings.warn(
        f"{name}({queue!r}) does nothing: loads are counted by signals; delete the call",
        DeprecationWarning,
        stacklevel=3,
    )


def _balancer() -> Balancer:
    return balancer_of(current_app)
