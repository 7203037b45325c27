-- What a search finds executions by when something failed in them: the codes of errors, the nodes that failed for
-- good, the workers that an attempt failed on or was lost with. Only commits of failures write here.
CREATE TABLE failures (
    execution bigint NOT NULL,
    created_at bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    field text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, field, value, created_at, id)
);
CREATE INDEX failures_execution ON failures (execution);

INSERT INTO failures (execution, namespace, field, value, created_at, id)
SELECT number, executions.namespace, 'error', code, executions.created_at, executions.id
FROM dead_letters JOIN executions ON number = execution WHERE code IS NOT NULL
ON CONFLICT DO NOTHING;
INSERT INTO failures (execution, namespace, field, value, created_at, id)
SELECT number, executions.namespace, 'node', node_id, executions.created_at, executions.id
FROM dead_letters JOIN executions ON number = execution
ON CONFLICT DO NOTHING;
INSERT INTO failures (execution, namespace, field, value, created_at, id)
SELECT number, executions.namespace, 'worker', worker, executions.created_at, executions.id
FROM dead_letters
JOIN executions ON number = dead_letters.execution
JOIN nodes ON nodes.execution = dead_letters.execution AND nodes.node_id = dead_letters.node_id
WHERE nodes.state = 'FAILED' AND worker IS NOT NULL
ON CONFLICT DO NOTHING;
-- An error begins with its code. It is not read as JSON: a message may hold U+0000, which PostgreSQL refuses.
INSERT INTO failures (execution, namespace, field, value, created_at, id)
SELECT number, executions.namespace, 'error', told.code, executions.created_at, executions.id
FROM progress
JOIN executions ON number = execution,
LATERAL (SELECT substring(convert_from(error, 'UTF8') FROM '^\{"code":"([a-z_]+)"') AS code) AS told
WHERE error IS NOT NULL AND told.code IS NOT NULL
ON CONFLICT DO NOTHING;

CREATE INDEX dead_letters_node ON dead_letters (namespace, node_id, created_at, id);
-- Groups of letters, one behind the other: of one workflow, node and code. None of the first two has a space.
CREATE INDEX dead_letters_groups ON dead_letters (
    namespace, state, (coalesce(workflow, '') || ' ' || node_id || ' ' || coalesce(code, '')), created_at, id
);
