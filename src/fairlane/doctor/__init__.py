"""The doctor (health checks, diagnostics): what is wrong with a queue, and what to do."""

from fairlane.doctor.doctor import Doctor

__all__ = ["Doctor"]
