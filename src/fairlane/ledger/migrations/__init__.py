"""SQL schema and migrations: numbered steps per database, applied in order and never edited."""
