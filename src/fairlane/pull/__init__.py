"""What workers that pull can say, over HTTP or in the same process."""

from fairlane.pull.desk import Desk

__all__ = ["Desk"]
