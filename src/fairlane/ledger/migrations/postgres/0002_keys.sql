-- Who may call, kept as hashes. A key that was ever made stays here, revoked or not.
CREATE TABLE keys (
    id           text COLLATE "C" PRIMARY KEY,
    tenant       text    NOT NULL,
    role         text    NOT NULL,
    hash         text    NOT NULL,
    name         text    NOT NULL,
    act_as       boolean NOT NULL,
    set_priority boolean NOT NULL,
    created_at   bigint  NOT NULL,
    expires_at   bigint,
    revoked_at   bigint
);

-- Tickets that have been used, until they would have run out anyway.
CREATE TABLE tickets (
    id    text COLLATE "C" PRIMARY KEY,
    until bigint NOT NULL
);

-- What every process of this ledger signs with; made when it is first asked for.
INSERT INTO meta VALUES ('secret', '');
