"""Settings of a process: read, checked, explained."""

from fairlane.config.problems import BadSettings
from fairlane.config.read import load
from fairlane.config.settings import Settings

__all__ = ["BadSettings", "Settings", "load"]
