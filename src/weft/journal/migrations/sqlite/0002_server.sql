-- What a server is asked for: batches, lists by any condition, numbers without a scan, and letting go of what
-- is old.
--
-- The two tables of executions are made anew. Their payloads stand last now: to reach a column behind a
-- payload, SQLite reads every page of it. And ``progress`` repeats what lists are ordered by, so that one index
-- gives the newest executions of a state.

CREATE TABLE new_executions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    workflow TEXT,
    version INTEGER,
    digest TEXT NOT NULL,
    labels TEXT NOT NULL,
    priority TEXT NOT NULL,
    batch TEXT,
    batch_index INTEGER,
    partition INTEGER NOT NULL,
    total INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    input BLOB NOT NULL
);

CREATE TABLE new_progress (
    execution INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    generation INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    unsettled INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    error TEXT,
    started_at INTEGER,
    finished_at INTEGER,
    deadline_at INTEGER,
    updated_at INTEGER NOT NULL,
    output BLOB
);

-- A node that is settled has a row, so the rows give the numbers that were not kept before.
CREATE TABLE settled AS
SELECT
    execution,
    count(state) AS total,
    sum(state IS 'SKIPPED') AS skipped,
    sum(state IS 'CANCELLED') AS cancelled
FROM nodes GROUP BY execution;
CREATE UNIQUE INDEX settled_execution ON settled (execution);

INSERT INTO new_executions
SELECT
    number, id, namespace, workflow, version, digest, labels, priority, batch, NULL, partition,
    unsettled + ifnull(settled.total, 0), created_at, input
FROM executions
JOIN progress ON progress.execution = number
LEFT JOIN settled ON settled.execution = number;

INSERT INTO new_progress
SELECT
    progress.execution, namespace, created_at, id, state, generation, epoch, unsettled, failed,
    ifnull(skipped, 0), ifnull(cancelled, 0), seq, error, started_at, finished_at, deadline_at, updated_at,
    output
FROM progress
JOIN executions ON number = progress.execution
LEFT JOIN settled ON settled.execution = progress.execution;

DROP TABLE settled;
DROP TABLE executions;
DROP TABLE progress;
ALTER TABLE new_executions RENAME TO executions;
ALTER TABLE new_progress RENAME TO progress;

CREATE INDEX executions_newest ON executions (namespace, created_at, id);
CREATE INDEX executions_workflow ON executions (namespace, workflow, created_at, id)
WHERE workflow IS NOT NULL;
CREATE INDEX executions_batch ON executions (batch, batch_index) WHERE batch IS NOT NULL;
CREATE INDEX executions_batch_newest ON executions (batch, created_at, id) WHERE batch IS NOT NULL;
CREATE INDEX executions_digest ON executions (digest);
-- Neither has a column that changes with every event: they are touched when an execution starts and ends.
CREATE INDEX progress_state ON progress (state, namespace, created_at, id);
CREATE INDEX progress_finished ON progress (finished_at) WHERE finished_at IS NOT NULL;

-- The labels of executions once more, in the order of lists.
CREATE TABLE labels (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    id TEXT NOT NULL,
    execution INTEGER NOT NULL,
    PRIMARY KEY (namespace, key, value, created_at, id)
) WITHOUT ROWID;
CREATE INDEX labels_execution ON labels (execution);
INSERT INTO labels
SELECT namespace, label.key, label.value, created_at, executions.id, number
FROM executions, json_each(labels) AS label;

CREATE TABLE batches (
    id TEXT PRIMARY KEY NOT NULL,
    namespace TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version INTEGER NOT NULL,
    total INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX batches_created_at ON batches (created_at, id);

CREATE INDEX cache_good_until ON cache (good_until);
CREATE INDEX idempotency_keys_resource ON idempotency_keys (resource);

-- The highest number that was ever given: it outlives the versions of a workflow that is deleted.
ALTER TABLE workflows ADD COLUMN last_version INTEGER NOT NULL DEFAULT 0;
CREATE INDEX versions_digest ON versions (digest, namespace, workflow);

ALTER TABLE dead_letters ADD COLUMN code TEXT;
UPDATE dead_letters SET code = json_extract(error, '$.code');
CREATE INDEX dead_letters_code ON dead_letters (namespace, code, created_at, id);
CREATE INDEX dead_letters_workflow ON dead_letters (namespace, workflow, created_at, id);
CREATE INDEX dead_letters_state ON dead_letters (state, namespace, created_at, id);

-- Executions that are gone for everybody, whose nodes, events and dead letters are still being removed.
CREATE TABLE purging (number INTEGER PRIMARY KEY);
