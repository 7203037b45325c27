-- Times are microseconds since 1970. Payloads, and JSON that people have a part in (errors, labels), are
-- bytea: what was accepted, byte for byte. Neither jsonb nor text would take all of it.
--
-- Text is compared byte by byte ("C"): lists have the same order on every server, and indexes are fast.

CREATE TABLE definitions (
    digest text COLLATE "C" PRIMARY KEY,
    document bytea NOT NULL,
    created_at bigint NOT NULL
);

-- A workflow that is deleted keeps this row alone, for the last number that was given.
CREATE TABLE workflows (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    latest integer NOT NULL,
    last_version integer NOT NULL,
    created_at bigint NOT NULL,
    deleted_at bigint,
    PRIMARY KEY (namespace, name)
);

CREATE TABLE versions (
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    digest text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (namespace, workflow, version)
);
CREATE UNIQUE INDEX versions_digest ON versions (digest, namespace, workflow);

CREATE TABLE aliases (
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    alias text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    PRIMARY KEY (namespace, workflow, alias)
);

CREATE TABLE idempotency_keys (
    namespace text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    request_digest text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE INDEX idempotency_keys_resource ON idempotency_keys (resource);

CREATE TABLE batches (
    id text COLLATE "C" PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    total integer NOT NULL,
    created_at bigint NOT NULL
);
CREATE INDEX batches_created_at ON batches (created_at, id);

-- What never changes of an execution. All other tables name it by its number: eight bytes instead of 36.
CREATE TABLE executions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C",
    version integer,
    digest text COLLATE "C" NOT NULL,
    labels bytea NOT NULL,
    priority text COLLATE "C" NOT NULL,
    batch text COLLATE "C",
    batch_index integer,
    partition integer NOT NULL,
    checkpoint boolean NOT NULL,
    total integer NOT NULL,
    created_at bigint NOT NULL,
    input bytea NOT NULL
);
CREATE INDEX executions_newest ON executions (namespace, created_at, id);
CREATE INDEX executions_workflow ON executions (namespace, workflow, created_at, id)
WHERE workflow IS NOT NULL;
CREATE INDEX executions_batch ON executions (batch, batch_index) WHERE batch IS NOT NULL;
CREATE INDEX executions_batch_newest ON executions (batch, created_at, id) WHERE batch IS NOT NULL;
CREATE INDEX executions_digest ON executions (digest);

-- What every commit changes of an execution, and the row that every transaction about it locks first. It repeats
-- what lists are ordered by, so that one index gives the newest executions of a state. No index has a column
-- that changes with every event, and pages have room: most updates stay on their page and touch no index (HOT).
CREATE TABLE progress (
    execution bigint PRIMARY KEY,
    created_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    deadline_at bigint,
    updated_at bigint NOT NULL,
    generation integer NOT NULL,
    epoch integer NOT NULL,
    unsettled integer NOT NULL,
    failed integer NOT NULL,
    skipped integer NOT NULL,
    cancelled integer NOT NULL,
    seq integer NOT NULL,
    state text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    error bytea,
    output bytea
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX progress_state ON progress (state, namespace, created_at, id);
CREATE INDEX progress_finished ON progress (finished_at, execution) WHERE finished_at IS NOT NULL;
CREATE INDEX progress_active ON progress (execution) WHERE state IN ('PENDING', 'RUNNING', 'PAUSED');

-- Columns of eight bytes first: each would otherwise be padded to its place.
CREATE TABLE nodes (
    execution bigint NOT NULL,
    queued_at bigint,
    started_at bigint,
    finished_at bigint,
    retry_at bigint,
    output_bytes bigint,
    attempt integer NOT NULL,
    ended integer NOT NULL,
    answered integer NOT NULL,
    generation integer NOT NULL,
    seq integer NOT NULL,
    failures integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,
    issued integer NOT NULL DEFAULT 0,
    cached boolean NOT NULL DEFAULT false,
    node_id text COLLATE "C" NOT NULL,
    state text COLLATE "C",
    worker text COLLATE "C",
    reason text COLLATE "C",
    cause text COLLATE "C",
    blob text COLLATE "C",
    error bytea,
    output bytea,
    PRIMARY KEY (execution, node_id)
);
CREATE INDEX nodes_blob ON nodes (blob) WHERE blob IS NOT NULL;

CREATE TABLE events (
    execution bigint NOT NULL,
    seq integer NOT NULL,
    node_id text COLLATE "C",
    body bytea NOT NULL,
    PRIMARY KEY (execution, seq)
);

-- The labels of executions once more, in the order of lists.
CREATE TABLE labels (
    namespace text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL,
    created_at bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    execution bigint NOT NULL,
    PRIMARY KEY (namespace, key, value, created_at, id)
);
CREATE INDEX labels_execution ON labels (execution);

CREATE TABLE dead_letters (
    id text COLLATE "C" PRIMARY KEY,
    execution bigint NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    workflow text COLLATE "C",
    node_id text COLLATE "C" NOT NULL,
    generation integer NOT NULL,
    attempt integer NOT NULL,
    handler text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    error bytea NOT NULL,
    code text COLLATE "C",
    state text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL
);
CREATE INDEX dead_letters_newest ON dead_letters (namespace, created_at, id);
CREATE INDEX dead_letters_execution ON dead_letters (execution, created_at, id);
CREATE INDEX dead_letters_code ON dead_letters (namespace, code, created_at, id);
CREATE INDEX dead_letters_workflow ON dead_letters (namespace, workflow, created_at, id);
CREATE INDEX dead_letters_state ON dead_letters (state, namespace, created_at, id);

-- An output lies here, or in a blob.
CREATE TABLE cache (
    key text COLLATE "C" PRIMARY KEY,
    output bytea,
    blob text COLLATE "C",
    good_until bigint NOT NULL
);
CREATE INDEX cache_blob ON cache (blob) WHERE blob IS NOT NULL;
CREATE INDEX cache_good_until ON cache (good_until);

CREATE TABLE blobs (
    name text COLLATE "C" PRIMARY KEY,
    payload bytea NOT NULL,
    created_at bigint NOT NULL
);
CREATE INDEX blobs_created_at ON blobs (created_at);

-- Executions that are gone for everybody, whose nodes, events and dead letters are still being removed.
CREATE TABLE purging (number bigint PRIMARY KEY);

-- What the processes of a fleet sign their messages with: one row, made by the first that needs it.
CREATE TABLE seal (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    key bytea NOT NULL
);
