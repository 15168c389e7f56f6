-- Bulk actions: what was previewed, and how far its execution is. `body` is JSON.
CREATE TABLE bulk_actions (
    id     TEXT    PRIMARY KEY,
    tenant TEXT    NOT NULL,
    until  INTEGER NOT NULL,
    body   TEXT    NOT NULL
);
