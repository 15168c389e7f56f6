"""The worker SDK for Python: functions that run tasks, over HTTP or inside the cluster."""

from fairlane.worker.context import Context, TaskFailed
from fairlane.worker.worker import Worker

__all__ = ["Context", "TaskFailed", "Worker"]
