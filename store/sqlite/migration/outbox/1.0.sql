-- Version 1.0. Within a major version every change is additive, so that an
-- older process goes on working on a newer schema.
--
-- IDs, keys and other text are BLOBs: compared byte for byte, whatever bytes
-- they have and whatever the encoding of the database. Times are nanoseconds
-- since 1970, 0 for none.

-- The versions that the database has.
CREATE TABLE IF NOT EXISTS gobridge_schema (
    name  TEXT NOT NULL,
    major INTEGER NOT NULL,
    minor INTEGER NOT NULL,
    PRIMARY KEY (name, major, minor)
) WITHOUT ROWID;
INSERT INTO gobridge_schema (name, major, minor) VALUES ('outbox', 1, 0);

-- One row per partition: counters, the newest stamp, and the fence.
CREATE TABLE gobridge_partition (
    id            INTEGER PRIMARY KEY,
    name          BLOB NOT NULL UNIQUE,
    route         BLOB NOT NULL, -- of the name, empty where it has another form
    binding       BLOB NOT NULL,
    seq           INTEGER NOT NULL DEFAULT 0,
    stamp         INTEGER NOT NULL DEFAULT 0,
    fence_owner   BLOB NOT NULL DEFAULT x'',
    fence_version INTEGER NOT NULL DEFAULT 0,
    pending       INTEGER NOT NULL DEFAULT 0,
    claimed       INTEGER NOT NULL DEFAULT 0,
    dead          INTEGER NOT NULL DEFAULT 0,
    dead_bytes    INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX gobridge_partition_scope ON gobridge_partition (route, binding);

-- Records that have not ended, and dead letters.
CREATE TABLE gobridge_record (
    id            INTEGER PRIMARY KEY,
    partition     INTEGER NOT NULL,
    status        INTEGER NOT NULL,           -- 0 pending, 1 claimed, 5 dead
    ready         INTEGER NOT NULL,           -- 1: claimable by itself
    freed         INTEGER NOT NULL DEFAULT 0, -- 1: claimed, but open to the next claim
    settled       INTEGER NOT NULL DEFAULT 0, -- 1: its last claimer released or buried it
    due_at        INTEGER NOT NULL,           -- what it waits for; 0 once that has come
    created_at    INTEGER NOT NULL,
    seq           INTEGER NOT NULL,
    size          INTEGER NOT NULL,           -- payload and headers
    ordering_key  BLOB NOT NULL,
    envelope_id   BLOB NOT NULL,
    binding       BLOB NOT NULL,
    not_before    INTEGER NOT NULL,
    retry_at      INTEGER NOT NULL DEFAULT 0,
    expires_at    INTEGER NOT NULL,
    claim_version INTEGER NOT NULL DEFAULT 0,
    claimed_at    INTEGER NOT NULL DEFAULT 0,
    claim_owner   BLOB NOT NULL DEFAULT x'',
    replay_count  INTEGER NOT NULL DEFAULT 0,
    attempts      INTEGER NOT NULL DEFAULT 0,
    unsettled     INTEGER NOT NULL DEFAULT 0,
    redrives      INTEGER NOT NULL DEFAULT 0,
    stored_at     INTEGER NOT NULL,
    ended_at      INTEGER NOT NULL DEFAULT 0,
    reason        BLOB NOT NULL DEFAULT x'',
    error         BLOB NOT NULL DEFAULT x'',
    content_hash  BLOB NOT NULL,
    sent_at       INTEGER NOT NULL,           -- the envelope's own CreatedAt
    subject       BLOB NOT NULL,
    content_type  BLOB NOT NULL,
    headers       BLOB NOT NULL,
    payload       BLOB                        -- null: in gobridge_payload
);
CREATE UNIQUE INDEX gobridge_record_identity ON gobridge_record (partition, envelope_id, binding);
-- What a claim takes from (ready = 1), and the depth.
CREATE INDEX gobridge_record_pending ON gobridge_record (partition, ready, created_at, seq)
    WHERE status = 0 OR ready = 1;
-- A key's head, and the way along the key.
CREATE INDEX gobridge_record_key ON gobridge_record (partition, ordering_key, created_at, seq)
    WHERE ordering_key <> x'' AND status IN (0, 1);
-- Claims that a takeover looks through.
CREATE INDEX gobridge_record_claimed ON gobridge_record (partition, claim_version, claimed_at, created_at, seq)
    WHERE status = 1 AND freed = 0;
CREATE INDEX gobridge_record_due ON gobridge_record (partition, due_at, created_at, seq) WHERE due_at > 0;
CREATE INDEX gobridge_record_retry ON gobridge_record (partition, retry_at) WHERE status = 0 AND retry_at > 0;
CREATE INDEX gobridge_record_expiry ON gobridge_record (partition, expires_at) WHERE status = 0 AND expires_at > 0;
CREATE INDEX gobridge_record_dead ON gobridge_record (partition, created_at, seq) WHERE status = 5;
CREATE INDEX gobridge_record_died ON gobridge_record (partition, ended_at) WHERE status = 5;

-- Payloads too large to be rewritten whenever a record changes its state.
CREATE TABLE gobridge_payload (
    id      INTEGER PRIMARY KEY, -- the record's
    payload BLOB NOT NULL
);

-- What is remembered of records that were delivered, expired or discarded.
CREATE TABLE gobridge_ended (
    id            INTEGER PRIMARY KEY,
    partition     INTEGER NOT NULL,
    state         INTEGER NOT NULL,
    settled       INTEGER NOT NULL, -- 1: its claimer ended it
    created_at    INTEGER NOT NULL,
    seq           INTEGER NOT NULL,
    stored_at     INTEGER NOT NULL,
    ended_at      INTEGER NOT NULL,
    claim_version INTEGER NOT NULL,
    claimed_at    INTEGER NOT NULL,
    replay_count  INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    redrives      INTEGER NOT NULL,
    not_before    INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    ordering_key  BLOB NOT NULL,
    envelope_id   BLOB NOT NULL,
    binding       BLOB NOT NULL,
    claim_owner   BLOB NOT NULL,
    reason        BLOB NOT NULL,
    error         BLOB NOT NULL,
    content_hash  BLOB NOT NULL
);
CREATE UNIQUE INDEX gobridge_ended_identity ON gobridge_ended (partition, envelope_id, binding);
CREATE INDEX gobridge_ended_at ON gobridge_ended (partition, ended_at);
CREATE INDEX gobridge_ended_key ON gobridge_ended (partition, ordering_key, created_at, seq)
    WHERE ordering_key <> x'' AND state = 2;

-- Pauses and halts in force.
CREATE TABLE gobridge_control (
    route        BLOB NOT NULL,
    binding      BLOB NOT NULL,
    kind         TEXT NOT NULL,
    ordering_key BLOB NOT NULL,
    envelope_id  BLOB NOT NULL,
    since        INTEGER NOT NULL,
    by_whom      BLOB NOT NULL,
    reason       BLOB NOT NULL,
    PRIMARY KEY (route, binding, kind, ordering_key, envelope_id)
) WITHOUT ROWID;
