-- Times are bigint microseconds since 1970. JSON is stored as text. Everything stands in the schema
-- `fairlane`, which is the search path of every connection. Texts in an index are compared byte by
-- byte: sooner done than by the rules of a language, the same in every database, and true still when
-- the system learns other rules.

CREATE TABLE meta (
    name  text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

INSERT INTO meta VALUES ('epoch', '/0'), ('turn', '0/'), ('file', ''), ('catalog', ''), ('clock', '0/0/0');

-- What changes while a job lives stands here; large inputs stand in `inputs`, so that a change of
-- state never rewrites them. A completed job's row tells its last attempt, output and events. Pages
-- are filled by less than half, so that a claim and an ending find room beside the old row. What
-- never changes stands in front: the log repeats a row only from its first change on.
CREATE TABLE jobs (
    id            text COLLATE "C" PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    key           text   NOT NULL,
    username      text COLLATE "C",
    name          text   NOT NULL,
    plan          text   NOT NULL,
    input         text,
    model         text   NOT NULL DEFAULT '',
    tier          text   NOT NULL,
    parent        text COLLATE "C",
    cell          text,
    tags          text,
    callback      text,
    trace         text,
    duration      double precision NOT NULL DEFAULT 0,
    created_at    bigint NOT NULL,
    cells         bigint NOT NULL DEFAULT 0,
    lane          text   NOT NULL,
    level         text   NOT NULL,
    charge        text,
    last_op       text,
    promoted_at   bigint,
    give_up_at    bigint,
    ready_at      bigint NOT NULL,
    timeout       bigint NOT NULL,
    paid_at       bigint NOT NULL DEFAULT 0,
    band          bigint NOT NULL DEFAULT 2,
    written       bigint NOT NULL DEFAULT 0,
    cells_left    bigint NOT NULL DEFAULT 0,
    rev           bigint NOT NULL DEFAULT 1,
    seq           bigint NOT NULL DEFAULT 1,
    step          bigint NOT NULL DEFAULT 0,
    attempt       bigint NOT NULL DEFAULT 0,
    fence         bigint NOT NULL DEFAULT 0,
    waited        bigint NOT NULL DEFAULT 0,
    started_at    bigint,
    lease         bigint, -- how long it lasts between two heartbeats
    lease_until   bigint,
    deadline      bigint,
    finished_at   bigint,
    state         text   NOT NULL DEFAULT 'queued',
    token         text,
    worker        text,
    region        text,
    ended_by      text,  -- the token that completed it
    output        text,  -- of the last step, with its metrics
    metrics       text,
    error_code    text,
    error_message text,
    progress      text
) WITH (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- None of them mentions what a claim or a good ending changes: those write to no index at all.
CREATE INDEX jobs_by_user  ON jobs (username, tenant, id);
CREATE INDEX jobs_give_up  ON jobs (give_up_at)  WHERE give_up_at IS NOT NULL;
CREATE INDEX jobs_cells    ON jobs (parent, id)  WHERE parent IS NOT NULL;
CREATE INDEX jobs_ended_badly ON jobs (id)       WHERE error_code IS NOT NULL;

-- Which jobs live, are leased, or have ended (under the name of their state), many to a row. From
-- `at` on somebody looks through the row and strikes off what is otherwise by now. A live job has
-- no smaller id than the smallest `first`.
CREATE SEQUENCE rolls_seq;

CREATE TABLE rolls (
    kind   text COLLATE "C" NOT NULL,
    at     bigint NOT NULL DEFAULT (extract(epoch FROM now()) * 1000000)::bigint,
    seq    bigint NOT NULL DEFAULT nextval('rolls_seq'),
    number bigint NOT NULL,
    first  text COLLATE "C",
    jobs   text[] COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, at, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE rolls ALTER jobs SET STORAGE EXTERNAL; -- compressing it costs more than writing it

CREATE INDEX rolls_oldest ON rolls (first) WHERE kind = 'live';

CREATE TABLE inputs (
    job   text COLLATE "C" PRIMARY KEY,
    input text NOT NULL
);

-- The output of a finished step, unless it stands in the job's row. Written once: a second success
-- of a step has nowhere to go.
CREATE TABLE steps (
    job         text COLLATE "C" NOT NULL,
    step        bigint NOT NULL,
    service     text   NOT NULL,
    output      text,
    metrics     text,
    attempts    bigint NOT NULL,
    finished_at bigint NOT NULL,
    PRIMARY KEY (job, step)
);

-- One row a lease that has ended, unless it completed its job. The token makes a repeated settle
-- recognisable.
CREATE TABLE attempts (
    job        text COLLATE "C" NOT NULL,
    fence      bigint NOT NULL,
    token      text   NOT NULL,
    step       bigint NOT NULL,
    number     bigint NOT NULL,
    worker     text   NOT NULL,
    region     text,
    started_at bigint NOT NULL,
    ended_at   bigint NOT NULL,
    outcome    text   NOT NULL,
    fault      text,
    message    text,
    PRIMARY KEY (job, fence)
);

-- One row a move: the events it made, numbered `first`, `first` + 1, … without a gap over the job.
CREATE TABLE events (
    job   text COLLATE "C" NOT NULL,
    first bigint NOT NULL,
    body  text   NOT NULL,
    PRIMARY KEY (job, first)
);

-- A slot row exists while the slot is taken. `until` is empty while its lease lives; then, or for a
-- rate, it says when the slot is free again.
CREATE TABLE pools (
    name  text COLLATE "C" PRIMARY KEY,
    size  bigint NOT NULL,
    drain bigint NOT NULL DEFAULT 0 -- the highest number in use when the limit was last changed
);

CREATE TABLE slots (
    pool  text COLLATE "C" NOT NULL,
    n     bigint NOT NULL CHECK (n > 0),
    token text COLLATE "C" NOT NULL,
    job   text COLLATE "C" NOT NULL,
    until bigint,
    PRIMARY KEY (pool, n)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0);

CREATE INDEX slots_by_token ON slots (token);
CREATE INDEX slots_until    ON slots (until) WHERE until IS NOT NULL;

-- The last guard: whatever the code above it believes, a limit holds. Rows above a lowered limit
-- count against it until they are gone.
CREATE FUNCTION slots_within_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM (SELECT pool, max(n) AS highest FROM taken GROUP BY pool) mine
        JOIN pools ON pools.name = mine.pool
        WHERE mine.highest > pools.size OR (
            EXISTS (SELECT 1 FROM slots s WHERE s.pool = mine.pool AND s.n > pools.size)
            AND (SELECT count(*) FROM slots s WHERE s.pool = mine.pool) > pools.size)) THEN
        RAISE EXCEPTION 'no slot within the limit' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER slots_within_limit AFTER INSERT ON slots REFERENCING NEW TABLE AS taken
FOR EACH STATEMENT EXECUTE FUNCTION slots_within_limit();

-- The epoch, which with all limits stays what it is until the transaction ends. Empty if one of
-- these pools has no limit, or more taken than its limit. The lock comes first, then the look: each
-- statement in here sees what was committed before it.
CREATE FUNCTION hold_settings(limited text[]) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(4217);
    IF (SELECT count(*) FROM pools WHERE name = ANY(limited) AND drain <= size)
            < cardinality(limited) THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT value FROM meta WHERE name = 'epoch');
END $$;

-- Frees what these tokens hold, and hands `ended` through. A limit that is set just now gives slots to
-- what runs, and an ending waits for it: with the look in here, it sees them.
CREATE FUNCTION free_slots(tokens text[], ended bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM slots WHERE token = ANY(tokens) AND pool NOT LIKE 'rate:%';
    RETURN ended;
END $$;

-- How many jobs are in line and how many run, in parts, so that transactions do not queue for one
-- row.
CREATE TABLE line (
    part    bigint PRIMARY KEY,
    queued  bigint NOT NULL,
    running bigint NOT NULL
) WITH (fillfactor = 10);

INSERT INTO line SELECT part, 0, 0 FROM generate_series(0, 15) part;

CREATE SEQUENCE outbox_seq;

CREATE TABLE outbox (
    seq  bigint PRIMARY KEY DEFAULT nextval('outbox_seq'),
    jobs text[] NOT NULL
);
ALTER TABLE outbox ALTER jobs SET STORAGE EXTERNAL;

CREATE TABLE idempotency (
    scope  text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    hash   text   NOT NULL,
    job    text COLLATE "C" NOT NULL,
    at     bigint NOT NULL,
    status text,
    PRIMARY KEY (scope, key)
);

CREATE INDEX idempotency_by_age ON idempotency (at);
CREATE INDEX idempotency_by_job ON idempotency (job);

CREATE TABLE users (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    tier       text   NOT NULL,
    changed_at bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- Limits of single users, where they differ from their tier's.
CREATE TABLE quotas (
    tenant   text COLLATE "C" NOT NULL,
    username text COLLATE "C" NOT NULL,
    pending  bigint,
    per_hour bigint,
    PRIMARY KEY (tenant, username)
);

-- Credits: append-only, double entry. Every operation's entries add up to nothing, every balance is
-- the sum of its account's entries, and nobody but the house goes below zero.
CREATE TABLE accounts (
    name    text COLLATE "C" PRIMARY KEY,
    balance bigint NOT NULL,
    CHECK (balance >= 0 OR name LIKE 'house:%')
);

CREATE TABLE entries (
    operation text COLLATE "C" NOT NULL,
    account   text COLLATE "C" NOT NULL,
    amount    bigint NOT NULL,
    at        bigint NOT NULL,
    note      text,
    PRIMARY KEY (account, operation)
);

CREATE INDEX entries_by_operation ON entries (operation);

CREATE FUNCTION is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END $$;

CREATE TRIGGER entries_are_final BEFORE UPDATE OR DELETE ON entries
FOR EACH ROW EXECUTE FUNCTION is_final();

CREATE TABLE workers (
    id           text COLLATE "C" PRIMARY KEY,
    spec         text   NOT NULL,
    state        text   NOT NULL,
    heartbeat_at bigint NOT NULL
) WITH (fillfactor = 50);

-- Live changes win over the file until the file's own value changes.
CREATE TABLE settings (
    name       text COLLATE "C" PRIMARY KEY,
    value      text   NOT NULL,
    file_value text,
    changed_at bigint NOT NULL
);

CREATE TABLE audit (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,
    actor  text   NOT NULL,
    action text   NOT NULL,
    target text   NOT NULL,
    before text,
    after  text
);

CREATE TRIGGER audit_is_final BEFORE UPDATE OR DELETE ON audit
FOR EACH ROW EXECUTE FUNCTION is_final();
