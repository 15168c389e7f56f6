-- What the Priority Service last said about a user: good until it says something else.
CREATE TABLE known_tiers (
    tenant    text COLLATE "C" NOT NULL,
    username  text COLLATE "C" NOT NULL,
    tier      text   NOT NULL,
    learnt_at bigint NOT NULL,
    PRIMARY KEY (tenant, username)
);

-- One row for every end of a job that has a callback, written with that end. It tells everything
-- that is sent, so that it stays true when the job goes on or its record is gone. `due_at` is when
-- to try next; empty = it is over, and `outcome` says how.
CREATE TABLE webhooks (
    id            text COLLATE "C" PRIMARY KEY,
    job           text COLLATE "C" NOT NULL,
    rev           bigint NOT NULL,
    tenant        text COLLATE "C" NOT NULL,
    url           text COLLATE "C" NOT NULL,
    state         text   NOT NULL,
    name          text   NOT NULL,
    username      text,
    tags          text,
    error_code    text,
    error_message text,
    ended_at      bigint NOT NULL,
    tries         bigint NOT NULL DEFAULT 0,
    due_at        bigint,
    outcome       text,
    over_at       bigint
);

CREATE INDEX webhooks_due  ON webhooks (due_at)      WHERE due_at IS NOT NULL;
CREATE INDEX webhooks_job  ON webhooks (job, rev)    WHERE due_at IS NOT NULL;
CREATE INDEX webhooks_over ON webhooks (over_at)     WHERE over_at IS NOT NULL;
CREATE INDEX webhooks_gone ON webhooks (tenant, url) WHERE outcome = 'gone';

CREATE FUNCTION webhook_with_the_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO webhooks (id, job, rev, tenant, url, state, name, username, tags, error_code,
        error_message, ended_at, due_at)
    VALUES ('msg_' || NEW.id || '_' || NEW.rev, NEW.id, NEW.rev, NEW.tenant, NEW.callback,
        NEW.state, NEW.name, NEW.username, NEW.tags, NEW.error_code, NEW.error_message,
        NEW.finished_at, NEW.finished_at);
    RETURN NULL;
END $$;

CREATE TRIGGER webhook_with_the_end AFTER UPDATE OF finished_at ON jobs FOR EACH ROW
WHEN (NEW.callback IS NOT NULL AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL)
EXECUTE FUNCTION webhook_with_the_end();

-- What deliveries are signed with. During a rotation the old secret lasts until `until`.
CREATE TABLE webhook_secrets (
    tenant text COLLATE "C" NOT NULL,
    secret text   NOT NULL,
    at     bigint NOT NULL,
    until  bigint,
    PRIMARY KEY (tenant, at)
);
