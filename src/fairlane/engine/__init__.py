"""The queue engine: every operation writes to the ledger (SQL) first, then to the index."""

from fairlane.engine.engine import Engine

__all__ = ["Engine"]
