from fairlane.ledger.sqlite.ledger import SqliteLedger

__all__ = ["SqliteLedger"]
