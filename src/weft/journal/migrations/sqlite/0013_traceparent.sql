-- The caller's place in a trace, as the request that started an execution said.
--
-- The table of executions is made anew: a column added at its end would stand behind the input, and a list that
-- reads such a column reads every page of the input.

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
    forked_from TEXT,
    traceparent TEXT,
    input BLOB NOT NULL
);

INSERT INTO new_executions
SELECT
    number, id, namespace, workflow, version, digest, labels, priority, batch, batch_index, partition, total,
    created_at, forked_from, NULL, input
FROM executions;

DROP TABLE executions;
ALTER TABLE new_executions RENAME TO executions;

CREATE INDEX executions_newest ON executions (namespace, created_at, id);
CREATE INDEX executions_workflow ON executions (namespace, workflow, created_at, id)
WHERE workflow IS NOT NULL;
CREATE INDEX executions_batch ON executions (batch, batch_index) WHERE batch IS NOT NULL;
CREATE INDEX executions_batch_newest ON executions (batch, created_at, id) WHERE batch IS NOT NULL;
CREATE INDEX executions_digest ON executions (digest);
