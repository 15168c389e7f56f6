-- Distinct users per key: a user counts until `until`. `n` numbers the users of a key as they come,
-- and `until` never decreases with it, so those that count have consecutive numbers.
CREATE TABLE key_users (
    tenant TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    user   TEXT    NOT NULL,
    n      INTEGER NOT NULL,
    until  INTEGER NOT NULL,
    PRIMARY KEY (tenant, key, user)
) WITHOUT ROWID;

CREATE INDEX key_users_in_order ON key_users (tenant, key, until, n);
CREATE INDEX key_users_until    ON key_users (until);
