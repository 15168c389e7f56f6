"""Test utilities for your own tests: a queue with a clock that the test moves, and settings that
must keep their promises on a real workload."""

from fairlane.testing.engine import Queue, queue
from fairlane.testing.waits import assert_waits

__all__ = ["Queue", "assert_waits", "queue"]
