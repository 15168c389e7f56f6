"""The index: the order of waiting jobs. It proposes, the ledger decides. It is rebuildable."""
