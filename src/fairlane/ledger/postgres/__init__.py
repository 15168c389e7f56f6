"""The ledger in PostgreSQL, shared by any number of processes."""
