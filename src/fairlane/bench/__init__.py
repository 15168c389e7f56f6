"""Measuring Fairlane: what it does a second, and how long one waits."""
