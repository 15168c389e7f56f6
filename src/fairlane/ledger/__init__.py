"""The ledger: the durable system of record, in SQL."""
