"""The ledger: the truth, in SQL."""
