"""Workers in Python: functions that run tasks, wherever the queue is."""

from fairlane.worker.context import Context, TaskFailed
from fairlane.worker.worker import Worker

__all__ = ["Context", "TaskFailed", "Worker"]
