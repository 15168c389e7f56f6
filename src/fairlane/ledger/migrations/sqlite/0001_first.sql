-- Times are integer microseconds since 1970. JSON is stored as text.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

INSERT INTO meta VALUES ('epoch', '/0'), ('file', ''), ('catalog', '');

-- What changes while a job lives stands here; large inputs stand in `inputs`, so that a change of
-- state never rewrites them. A completed job's row tells its last attempt, output and events.
CREATE TABLE jobs (
    id            TEXT PRIMARY KEY,
    tenant        TEXT    NOT NULL,
    key           TEXT    NOT NULL,
    user          TEXT,
    name          TEXT    NOT NULL,
    state         TEXT    NOT NULL DEFAULT 'queued',
    plan          TEXT    NOT NULL,
    step          INTEGER NOT NULL DEFAULT 0,
    lane          TEXT    NOT NULL,
    input         TEXT,
    output        TEXT,  -- of the last step, with its metrics
    metrics       TEXT,
    model         TEXT    NOT NULL DEFAULT '',
    duration      REAL    NOT NULL DEFAULT 0,
    tier          TEXT    NOT NULL,
    level         TEXT    NOT NULL,
    promoted_at   INTEGER,
    band          INTEGER NOT NULL DEFAULT 2,
    paid_at       INTEGER NOT NULL DEFAULT 0,
    charge        TEXT,
    rev           INTEGER NOT NULL DEFAULT 1,
    seq           INTEGER NOT NULL DEFAULT 1,
    written       INTEGER NOT NULL DEFAULT 0,
    attempt       INTEGER NOT NULL DEFAULT 0,
    timeout       INTEGER NOT NULL,
    token         TEXT,
    fence         INTEGER NOT NULL DEFAULT 0,
    worker        TEXT,
    region        TEXT,
    lease         INTEGER, -- how long it lasts between two heartbeats
    lease_until   INTEGER,
    deadline      INTEGER,
    started_at    INTEGER,
    waited        INTEGER NOT NULL DEFAULT 0,
    ready_at      INTEGER NOT NULL,
    give_up_at    INTEGER,
    created_at    INTEGER NOT NULL,
    finished_at   INTEGER,
    error_code    TEXT,
    error_message TEXT,
    progress      TEXT,
    parent        TEXT,
    cell          TEXT,
    cells         INTEGER NOT NULL DEFAULT 0,
    cells_left    INTEGER NOT NULL DEFAULT 0,
    tags          TEXT,
    callback      TEXT,
    trace         TEXT,
    last_op       TEXT,
    ended_by      TEXT   -- the token that completed it
);

CREATE INDEX jobs_by_user  ON jobs (user, tenant); -- newest last, as rowids are
CREATE INDEX jobs_finished ON jobs (finished_at); -- live jobs stand at its front, as NULL
CREATE INDEX jobs_leased   ON jobs (lease_until)           WHERE token IS NOT NULL;
CREATE INDEX jobs_give_up  ON jobs (give_up_at)            WHERE give_up_at IS NOT NULL;
CREATE INDEX jobs_cells    ON jobs (parent, id)            WHERE parent IS NOT NULL;
CREATE INDEX jobs_ended_badly ON jobs (state, id)          WHERE state IN ('failed', 'dead');

CREATE TABLE inputs (
    job   TEXT PRIMARY KEY,
    input TEXT NOT NULL
) WITHOUT ROWID;

-- The output of a finished step, unless it stands in the job's row. Written once: a second success of a step has nowhere to go.
CREATE TABLE steps (
    job         TEXT    NOT NULL,
    step        INTEGER NOT NULL,
    service     TEXT    NOT NULL,
    output      TEXT,
    metrics     TEXT,
    attempts    INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    PRIMARY KEY (job, step)
) WITHOUT ROWID;

-- One row a lease that has ended, unless it completed its job. The token makes a repeated settle recognisable.
CREATE TABLE attempts (
    job        TEXT    NOT NULL,
    fence      INTEGER NOT NULL,
    token      TEXT    NOT NULL,
    step       INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    worker     TEXT    NOT NULL,
    region     TEXT,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    outcome    TEXT    NOT NULL,
    fault      TEXT,
    message    TEXT,
    PRIMARY KEY (job, fence)
) WITHOUT ROWID;

-- One row a move: the events it made, numbered `first`, `first` + 1, … without a gap over the job.
CREATE TABLE events (
    job   TEXT    NOT NULL,
    first INTEGER NOT NULL,
    body  TEXT    NOT NULL,
    PRIMARY KEY (job, first)
) WITHOUT ROWID;

-- A slot row exists while the slot is taken. `until` is empty while its lease lives; then, or for a
-- rate, it says when the slot is free again.
CREATE TABLE pools (
    name  TEXT PRIMARY KEY,
    size  INTEGER NOT NULL,
    drain INTEGER NOT NULL DEFAULT 0 -- the highest number in use when the limit was last changed
) WITHOUT ROWID;

CREATE TABLE slots (
    pool  TEXT    NOT NULL,
    n     INTEGER NOT NULL CHECK (n > 0),
    token TEXT    NOT NULL,
    job   TEXT    NOT NULL,
    until INTEGER,
    PRIMARY KEY (pool, n)
) WITHOUT ROWID;

CREATE INDEX slots_by_token ON slots (token);
CREATE INDEX slots_until    ON slots (until) WHERE until IS NOT NULL;

-- The last guard: whatever the code above it believes, a limit holds. Rows above a lowered limit
-- count against it until they are gone.
CREATE TRIGGER slots_within_limit BEFORE INSERT ON slots
WHEN EXISTS (
    SELECT 1 FROM pools p WHERE p.name = NEW.pool AND (
        NEW.n > p.size OR (
            EXISTS (SELECT 1 FROM slots s WHERE s.pool = NEW.pool AND s.n > p.size)
            AND (SELECT count(*) FROM slots s WHERE s.pool = NEW.pool) >= p.size)))
BEGIN
    SELECT RAISE(ABORT, 'no slot within the limit');
END;

CREATE TABLE outbox (
    seq  INTEGER PRIMARY KEY,
    jobs TEXT NOT NULL
);

CREATE TABLE idempotency (
    scope  TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    hash   TEXT    NOT NULL,
    job    TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    status TEXT,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_by_age ON idempotency (at);
CREATE INDEX idempotency_by_job ON idempotency (job);

CREATE TABLE users (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    tier       TEXT    NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

-- Limits of single users, where they differ from their tier's.
CREATE TABLE quotas (
    tenant   TEXT NOT NULL,
    user     TEXT NOT NULL,
    pending  INTEGER,
    per_hour INTEGER,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;

-- Credits: append-only, double entry. Every operation's entries add up to nothing, every balance is
-- the sum of its account's entries, and nobody but the house goes below zero.
CREATE TABLE accounts (
    name    TEXT PRIMARY KEY,
    balance INTEGER NOT NULL,
    CHECK (balance >= 0 OR name LIKE 'house:%')
) WITHOUT ROWID;

CREATE TABLE entries (
    operation TEXT    NOT NULL,
    account   TEXT    NOT NULL,
    amount    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    note      TEXT,
    PRIMARY KEY (account, operation)
) WITHOUT ROWID;

CREATE INDEX entries_by_operation ON entries (operation);

CREATE TRIGGER entries_are_final BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'credit entries are append-only'); END;
CREATE TRIGGER entries_stay BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'credit entries are append-only'); END;

CREATE TABLE workers (
    id           TEXT PRIMARY KEY,
    spec         TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    heartbeat_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Live changes win over the file until the file's own value changes.
CREATE TABLE settings (
    name       TEXT PRIMARY KEY,
    value      TEXT    NOT NULL,
    file_value TEXT,
    changed_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE audit (
    seq    INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    actor  TEXT    NOT NULL,
    action TEXT    NOT NULL,
    target TEXT    NOT NULL,
    before TEXT,
    after  TEXT
);

CREATE TRIGGER audit_is_final BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_stays BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
