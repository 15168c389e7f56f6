"""The verbs over ledger and index: SQL first, then the index."""

from fairlane.engine.engine import Engine

__all__ = ["Engine"]
