"""The verbs over ledger and index. SQL first, then the index; only what the ledger confirmed counts."""

from fairlane.engine.engine import Engine

__all__ = ["Engine"]
