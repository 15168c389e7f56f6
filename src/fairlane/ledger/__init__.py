"""The ledger: the truth, in SQL. What it says has happened; what it does not say has not."""
