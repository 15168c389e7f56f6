"""The scheduling index: the order of waiting jobs. The index proposes jobs, the ledger decides.
The index can be rebuilt from the ledger at any time."""
