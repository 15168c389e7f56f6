-- Who may call, kept as hashes. A key that was ever made stays here, revoked or not.
CREATE TABLE keys (
    id           TEXT PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    role         TEXT    NOT NULL,
    hash         TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    act_as       INTEGER NOT NULL,
    set_priority INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER
) WITHOUT ROWID;

-- Tickets that have been used, until they would have run out anyway.
CREATE TABLE tickets (
    id    TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) WITHOUT ROWID;

-- What every process of this ledger signs with; made when it is first asked for.
INSERT INTO meta VALUES ('secret', '');
