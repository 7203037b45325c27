-- Times are microseconds since 1970. Payloads are JSON text as it was accepted, byte for byte.
--
-- Rows of nodes and events name their execution by a number, and lie in the order in which they were written:
-- a batch touches the last pages of the table, and pages of a narrow index. Tables ordered by the
-- execution's id (36 characters, WITHOUT ROWID) took two to four times as long: there every row of a batch
-- dirties a page of its own.

CREATE TABLE definitions (
    digest TEXT PRIMARY KEY NOT NULL,
    document BLOB NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE TABLE workflows (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    latest INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deleted_at INTEGER,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

CREATE TABLE versions (
    namespace TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, workflow, version)
) WITHOUT ROWID;

CREATE TABLE aliases (
    namespace TEXT NOT NULL,
    workflow TEXT NOT NULL,
    alias TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (namespace, workflow, alias)
) WITHOUT ROWID;

CREATE TABLE idempotency_keys (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    request_digest TEXT NOT NULL,
    resource TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;

-- What never changes of an execution. Its input may be large, so it lies apart from what every commit writes.
CREATE TABLE executions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    workflow TEXT,
    version INTEGER,
    digest TEXT NOT NULL,
    input BLOB NOT NULL,
    labels TEXT NOT NULL,
    priority TEXT NOT NULL,
    batch TEXT,
    partition INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX executions_newest ON executions (namespace, created_at, id);

CREATE TABLE progress (
    execution INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    generation INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    unsettled INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    output BLOB,
    error TEXT,
    started_at INTEGER,
    finished_at INTEGER,
    deadline_at INTEGER,
    updated_at INTEGER NOT NULL
);
-- It has no column that changes with every event: it is touched when an execution starts and ends.
CREATE INDEX progress_active ON progress (execution) WHERE state IN ('PENDING', 'RUNNING', 'PAUSED');

CREATE TABLE nodes (
    execution INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    answered INTEGER NOT NULL,
    state TEXT,
    generation INTEGER NOT NULL,
    output BLOB,
    blob TEXT,
    output_bytes INTEGER,
    worker TEXT,
    queued_at INTEGER,
    started_at INTEGER,
    finished_at INTEGER,
    seq INTEGER NOT NULL,
    reason TEXT,
    cause TEXT,
    error TEXT,
    failures INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    retry_at INTEGER,
    issued INTEGER NOT NULL DEFAULT 0,
    cached INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (execution, node_id)
);
CREATE INDEX nodes_blob ON nodes (blob) WHERE blob IS NOT NULL;

CREATE TABLE events (
    execution INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (execution, seq)
);

CREATE TABLE dead_letters (
    id TEXT PRIMARY KEY NOT NULL,
    execution INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    workflow TEXT,
    node_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    handler TEXT NOT NULL,
    queue TEXT NOT NULL,
    error TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX dead_letters_newest ON dead_letters (namespace, created_at, id);
CREATE INDEX dead_letters_execution ON dead_letters (execution);

-- An output lies here, or in a blob.
CREATE TABLE cache (
    key TEXT PRIMARY KEY NOT NULL,
    output BLOB,
    blob TEXT,
    good_until INTEGER NOT NULL
);
CREATE INDEX cache_blob ON cache (blob) WHERE blob IS NOT NULL;

CREATE TABLE blobs (
    name TEXT PRIMARY KEY NOT NULL,
    payload BLOB NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX blobs_created_at ON blobs (created_at);
