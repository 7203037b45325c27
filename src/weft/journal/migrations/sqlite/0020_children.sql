-- Executions that other executions have called. The truth is progress.parent, the node that waits and the generation
-- that the child works for; this is where children are found by their parent and by what is still to be done.
-- phase: open; ended, and the parent was not told; told.
ALTER TABLE progress ADD COLUMN parent TEXT;
-- Of a node that calls a workflow: what it runs, and as which execution.
ALTER TABLE nodes ADD COLUMN called TEXT;
CREATE TABLE children (
    execution INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    place INTEGER,
    phase TEXT NOT NULL,
    node_id TEXT NOT NULL
);
CREATE INDEX children_parent ON children (parent, node_id, attempt, place);
CREATE INDEX children_open ON children (parent) WHERE phase = 'open';
CREATE INDEX children_untold ON children (changed_at) WHERE phase = 'ended';

-- The parent of an execution. The table of executions is made anew, as for the columns before it, so that no column
-- stands behind the input, and the views that read it with it.
DROP VIEW weft_nodes;
DROP VIEW weft_events;

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
    "trigger" TEXT,
    lane TEXT,
    parent_id TEXT,
    input BLOB NOT NULL
);

INSERT INTO new_executions
SELECT
    number, id, namespace, workflow, version, digest, labels, priority, batch, batch_index, partition, total,
    created_at, forked_from, traceparent, "trigger", lane, NULL, input
FROM executions;

DROP TABLE executions;
ALTER TABLE new_executions RENAME TO executions;

-- Lists of executions leave children out.
-- parent_id is in their entries, so that a search reads no row to see that there is none.
CREATE INDEX executions_newest ON executions (namespace, created_at, id, parent_id) WHERE parent_id IS NULL;
CREATE INDEX executions_workflow ON executions (namespace, workflow, created_at, id, parent_id)
WHERE workflow IS NOT NULL AND parent_id IS NULL;
CREATE INDEX executions_batch ON executions (batch, batch_index) WHERE batch IS NOT NULL;
CREATE INDEX executions_batch_newest ON executions (batch, created_at, id) WHERE batch IS NOT NULL;
CREATE INDEX executions_digest ON executions (digest);
CREATE INDEX executions_trigger ON executions (namespace, "trigger", created_at, id)
WHERE "trigger" IS NOT NULL;
CREATE INDEX executions_parent ON executions (namespace, parent_id, created_at, id)
WHERE parent_id IS NOT NULL;

CREATE VIEW weft_nodes AS
SELECT
    executions.namespace,
    executions.id AS execution,
    executions.workflow,
    executions.version,
    nodes.node_id AS node,
    nodes.state,
    nodes.generation,
    CASE WHEN nodes.cached OR nodes.reused THEN 0 ELSE nodes.ended END AS attempts,
    strftime('%Y-%m-%dT%H:%M:%S', nodes.queued_at / 1000000, 'unixepoch')
    || printf('.%06dZ', nodes.queued_at % 1000000) AS queued_at,
    strftime('%Y-%m-%dT%H:%M:%S', nodes.started_at / 1000000, 'unixepoch')
    || printf('.%06dZ', nodes.started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', nodes.finished_at / 1000000, 'unixepoch')
    || printf('.%06dZ', nodes.finished_at % 1000000) AS finished_at,
    (nodes.finished_at - nodes.started_at) / 1e6 AS seconds,
    nodes.worker,
    json_extract(nodes.error, '$.code') AS error_code,
    nodes.error,
    nodes.reason,
    nodes.cause,
    nodes.cached,
    nodes.reused,
    nodes.output_bytes
FROM nodes JOIN executions ON executions.number = nodes.execution;

CREATE VIEW weft_events AS
SELECT
    executions.namespace,
    executions.id AS execution,
    executions.workflow,
    executions.version,
    told.seq,
    strftime('%Y-%m-%dT%H:%M:%S', told.at / 1000000, 'unixepoch') || printf('.%06dZ', told.at % 1000000) AS at,
    told.type,
    told.generation,
    told.node,
    told.attempt,
    told.state,
    told.worker,
    strftime('%Y-%m-%dT%H:%M:%S', told.queued_at / 1000000, 'unixepoch')
    || printf('.%06dZ', told.queued_at % 1000000) AS queued_at,
    strftime('%Y-%m-%dT%H:%M:%S', told.started_at / 1000000, 'unixepoch')
    || printf('.%06dZ', told.started_at % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', told.finished_at / 1000000, 'unixepoch')
    || printf('.%06dZ', told.finished_at % 1000000) AS finished_at,
    strftime('%Y-%m-%dT%H:%M:%S', told.due_at / 1000000, 'unixepoch')
    || printf('.%06dZ', told.due_at % 1000000) AS due_at,
    json_extract(told.error, '$.code') AS error_code,
    told.error,
    told.reason,
    told.cause,
    told.actor
FROM (
    SELECT
        execution,
        seq,
        at,
        type,
        json_extract(body, '$.generation') AS generation,
        json_extract(body, '$.node') AS node,
        json_extract(body, '$.attempt') AS attempt,
        json_extract(body, '$.state') AS state,
        json_extract(body, '$.worker') AS worker,
        json_extract(body, '$.queued_at') AS queued_at,
        json_extract(body, '$.started_at') AS started_at,
        json_extract(body, '$.finished_at') AS finished_at,
        json_extract(body, '$.due_at') AS due_at,
        json_extract(body, '$.error') AS error,
        json_extract(body, '$.reason') AS reason,
        json_extract(body, '$.cause') AS cause,
        json_extract(body, '$.actor') AS actor
    FROM (SELECT execution, seq, at, type, CAST(body AS TEXT) AS body FROM events)
    UNION ALL
    SELECT
        execution,
        seq,
        recorded_at,
        'node.completed',
        generation,
        node_id,
        CASE WHEN cached OR reused THEN 0 ELSE attempt END,
        'COMPLETED',
        worker,
        queued_at,
        started_at,
        finished_at,
        NULL, NULL, NULL, NULL, NULL
    FROM nodes WHERE recorded_at IS NOT NULL
) AS told
JOIN executions ON executions.number = told.execution;
