"""The worker protocol of pull workers: long poll, leases, heartbeats and results. Workers use it
over HTTP or in the same process."""

from fairlane.worker_protocol.service import WorkerService

__all__ = ["WorkerService"]
