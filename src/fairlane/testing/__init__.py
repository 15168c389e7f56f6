"""For your own tests: a queue of its own, and a clock that the test moves."""

from fairlane.testing.engine import Queue, queue

__all__ = ["Queue", "queue"]
