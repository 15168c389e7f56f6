"""Calls that choose the queue of one task or of a batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery import group

from fairlane.celery.fair import FairQueue
from fairlane.celery.router import balancer_of


def enqueue_balanced(task: Any, *args: Any, **kwargs: Any) -> Any:
    """Sends a task to the least loaded queue, also if the router does not balance it. Returns the
    result of `apply_async`."""
    queue = balancer_of(task.app).choose(task.name)
    return task.apply_async(args, kwargs, queue=queue)


def balanced_group(signatures: Iterable[Any]) -> Any:
    """Sends a batch as a Celery group, spread over the queues: each task goes to the queue that is
    least loaded when the tasks before it are counted. Returns the group's result."""
    signed = [signature.clone() for signature in signatures]
    if not signed or any(each.get("subtask_type") for each in signed):  # chains, groups, chords
        return group(signed).apply_async()  # the router chooses when each of their tasks is sent
    balancer = balancer_of(signed[0].app)
    queues = balancer.choose_many(signed[0].task, len(signed))
    for signature, queue in zip(signed, queues, strict=True):
        signature.set(queue=queue)
    return group(signed).apply_async()


def enqueue_for_user(task: Any, user_id: object, *args: Any, **kwargs: Any) -> Any:
    """Sends a task to the queue that the hash of the user gives: all tasks of a user are in one
    queue, and users who share it wait for each other."""
    queue = balancer_of(task.app).options.hashed(str(user_id))
    return task.apply_async(args, kwargs, queue=queue)


def enqueue_fair(task: Any, user_id: object, *args: Any, **kwargs: Any) -> Any:
    """Sends a task to the line of its user in the fair queue. Workers serve one user after the
    other, so that a bulk of one user does not delay others."""
    return apply_fair(task, user_id, args, kwargs)


def apply_fair(
    task: Any, user_id: object, args: Any = (), kwargs: Any = None, **options: Any
) -> Any:
    """`enqueue_fair` with the options of `apply_async`: `countdown`, `expires`, `task_id` …"""
    fair = FairQueue(balancer_of(task.app))
    return fair.publish(task, str(user_id), args, kwargs or {}, options)
