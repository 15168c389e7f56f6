-- Credits: the entries of a user have rising times, which are the order of booking and the place in
-- a statement. Entries of the same microsecond get the next free ones.
ALTER TABLE entries DISABLE TRIGGER entries_are_final;
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
ALTER TABLE entries ENABLE TRIGGER entries_are_final;

CREATE INDEX entries_by_time ON entries (account, at) INCLUDE (amount);

-- Distinct users per key: a user counts until `until`. `n` numbers the users of a key as they come,
-- and `until` never decreases with it, so those that count have consecutive numbers.
CREATE TABLE key_users (
    tenant   text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    username text COLLATE "C" NOT NULL,
    n        bigint NOT NULL,
    until    bigint NOT NULL,
    PRIMARY KEY (tenant, key, username)
);

CREATE INDEX key_users_in_order ON key_users (tenant, key, until, n);
CREATE INDEX key_users_until    ON key_users (until);
