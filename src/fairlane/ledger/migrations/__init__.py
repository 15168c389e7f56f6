"""Numbered steps of the schema, one folder a database, applied in order and never edited."""
