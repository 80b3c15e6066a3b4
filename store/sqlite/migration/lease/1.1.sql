-- Version 1.1: what people read of a lease. A process that knows version 1.0 only
-- leaves all of it as it was: noted is the version of the lease that it is of.
ALTER TABLE gobridge_lease ADD COLUMN noted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gobridge_lease ADD COLUMN acquired_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE gobridge_lease ADD COLUMN last_error BLOB NOT NULL DEFAULT x'';
ALTER TABLE gobridge_lease ADD COLUMN last_error_at INTEGER NOT NULL DEFAULT 0;
