-- Bulk actions: what was previewed, and how far its execution is. `body` is JSON.
CREATE TABLE bulk_actions (
    id     text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    until  bigint NOT NULL,
    body   text   NOT NULL
);
