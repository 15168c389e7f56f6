"""The ledger in PostgreSQL, shared by any number of processes."""

from fairlane.ledger.postgres.ledger import PostgresLedger as PostgresLedger
