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
