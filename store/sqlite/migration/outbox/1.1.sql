-- Version 1.1. What owners report, what was done by hand, and how often
-- somebody asked to have a partition tried again.

INSERT INTO gobridge_schema (name, major, minor) VALUES ('outbox', 1, 1);

ALTER TABLE gobridge_partition ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;

-- What a partition's owner reported last about the destination.
CREATE TABLE gobridge_condition (
    partition     INTEGER PRIMARY KEY,
    down          INTEGER NOT NULL,
    since         INTEGER NOT NULL,
    error         BLOB NOT NULL,
    next_probe    INTEGER NOT NULL,
    owner         BLOB NOT NULL,
    version       INTEGER NOT NULL,
    reported_at   INTEGER NOT NULL
);

-- Who did what, and why: the newest entries.
CREATE TABLE gobridge_audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    action  TEXT NOT NULL,
    scope   BLOB NOT NULL,
    count   INTEGER NOT NULL,
    by_whom BLOB NOT NULL,
    reason  BLOB NOT NULL
);
