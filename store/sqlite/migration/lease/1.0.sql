-- Version 1.0: who owns which partition, under which version.
CREATE TABLE gobridge_lease (
    partition  BLOB PRIMARY KEY,
    owner      BLOB NOT NULL,
    version    INTEGER NOT NULL,
    term       INTEGER NOT NULL, -- nanoseconds
    revision   INTEGER NOT NULL,
    released   INTEGER NOT NULL,
    renewed_at INTEGER NOT NULL
) WITHOUT ROWID;
