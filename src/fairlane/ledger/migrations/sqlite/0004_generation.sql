-- Credits: the entries of a user have rising times, which are the order of booking and the place in
-- a statement. Entries of the same microsecond get the next free ones.
DROP TRIGGER entries_are_final;
UPDATE entries SET at = ordered.at FROM (
    SELECT account, operation, n + max(at - n) OVER (PARTITION BY account ORDER BY n) AS at
    FROM (
        SELECT account, operation, at,
            row_number() OVER (PARTITION BY account ORDER BY at, operation) AS n
        FROM entries WHERE account LIKE 'user:%'
    ) AS numbered
) AS ordered
WHERE entries.account = ordered.account AND entries.operation = ordered.operation
    AND entries.at <> ordered.at;
CREATE TRIGGER entries_are_final BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'credit entries are append-only'); END;

CREATE INDEX entries_by_time ON entries (account, at, amount);

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
