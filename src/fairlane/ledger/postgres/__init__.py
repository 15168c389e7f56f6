"""The PostgreSQL ledger, shared by any number of processes."""

from fairlane.ledger.postgres.ledger import PostgresLedger as PostgresLedger
