-- History in plain columns, for people who bring their own tools: docs/howto/sql.md has what each means. Columns are
-- added and never change. A migration that makes one of these tables anew drops both views first.

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
