-- What the Priority Service last said about a user: good until it says something else.
CREATE TABLE known_tiers (
    tenant    TEXT    NOT NULL,
    user      TEXT    NOT NULL,
    tier      TEXT    NOT NULL,
    learnt_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, user)
) WITHOUT ROWID;

-- One row for every end of a job that has a callback, written with that end. It tells everything
-- that is sent, so that it stays true when the job goes on or its record is gone. `due_at` is when
-- to try next; empty = it is over, and `outcome` says how.
CREATE TABLE webhooks (
    id            TEXT PRIMARY KEY,
    job           TEXT    NOT NULL,
    rev           INTEGER NOT NULL,
    tenant        TEXT    NOT NULL,
    url           TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    user          TEXT,
    tags          TEXT,
    error_code    TEXT,
    error_message TEXT,
    ended_at      INTEGER NOT NULL,
    tries         INTEGER NOT NULL DEFAULT 0,
    due_at        INTEGER,
    outcome       TEXT,
    over_at       INTEGER
) WITHOUT ROWID;

CREATE INDEX webhooks_due  ON webhooks (due_at)       WHERE due_at IS NOT NULL;
CREATE INDEX webhooks_job  ON webhooks (job, rev)     WHERE due_at IS NOT NULL;
CREATE INDEX webhooks_over ON webhooks (over_at)      WHERE over_at IS NOT NULL;
CREATE INDEX webhooks_gone ON webhooks (tenant, url)  WHERE outcome = 'gone';

CREATE TRIGGER webhook_with_the_end AFTER UPDATE OF finished_at ON jobs
WHEN NEW.callback IS NOT NULL AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL
BEGIN
    INSERT INTO webhooks (id, job, rev, tenant, url, state, name, user, tags, error_code,
        error_message, ended_at, due_at)
    VALUES ('msg_' || NEW.id || '_' || NEW.rev, NEW.id, NEW.rev, NEW.tenant, NEW.callback,
        NEW.state, NEW.name, NEW.user, NEW.tags, NEW.error_code, NEW.error_message,
        NEW.finished_at, NEW.finished_at);
END;

-- What deliveries are signed with. During a rotation the old secret lasts until `until`.
CREATE TABLE webhook_secrets (
    tenant TEXT    NOT NULL,
    secret TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    until  INTEGER,
    PRIMARY KEY (tenant, at)
) WITHOUT ROWID;
