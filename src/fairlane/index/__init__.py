"""The index: the hot order of what waits. It proposes; the ledger decides. Always rebuildable."""
