"""What workers that pull can say, over HTTP or in the same process."""

from fairlane.worker_protocol.service import WorkerService

__all__ = ["WorkerService"]
