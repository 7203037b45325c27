-- What a search finds executions by when something failed in them: the codes of errors, the nodes that failed for
-- good, the workers that an attempt failed on or was lost with. Only commits of failures write here.
CREATE TABLE failures (
    execution INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    field TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    id TEXT NOT NULL
);
CREATE UNIQUE INDEX failures_newest ON failures (namespace, field, value, created_at, id);
CREATE INDEX failures_execution ON failures (execution);

INSERT OR IGNORE INTO failures
SELECT number, executions.namespace, 'error', code, executions.created_at, executions.id
FROM dead_letters JOIN executions ON number = execution WHERE code IS NOT NULL;
INSERT OR IGNORE INTO failures
SELECT number, executions.namespace, 'node', node_id, executions.created_at, executions.id
FROM dead_letters JOIN executions ON number = execution;
INSERT OR IGNORE INTO failures
SELECT number, executions.namespace, 'worker', worker, executions.created_at, executions.id
FROM dead_letters
JOIN executions ON number = dead_letters.execution
JOIN nodes ON nodes.execution = dead_letters.execution AND nodes.node_id = dead_letters.node_id
WHERE nodes.state = 'FAILED' AND worker IS NOT NULL;
INSERT OR IGNORE INTO failures
SELECT number, executions.namespace, 'error', json_extract(error, '$.code'), executions.created_at, executions.id
FROM progress JOIN executions ON number = execution
WHERE error IS NOT NULL AND json_extract(error, '$.code') IS NOT NULL;

CREATE INDEX dead_letters_node ON dead_letters (namespace, node_id, created_at, id);
-- Groups of letters, one behind the other: of one workflow, node and code. None of the first two has a space.
CREATE INDEX dead_letters_groups ON dead_letters (
    namespace, state, coalesce(workflow, '') || ' ' || node_id || ' ' || coalesce(code, ''), created_at, id
);
