-- The rules by which executions start. revision: raised by every change that somebody makes. fire_at: when the next
-- due time fires; NULL: no schedule, or disabled. event_type: NULL where it listens to no event now.
CREATE TABLE triggers (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    event_type TEXT,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    next_at INTEGER,
    fire_at INTEGER,
    skipped INTEGER NOT NULL DEFAULT 0,
    skipped_at INTEGER,
    error BLOB,
    document BLOB NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
CREATE INDEX triggers_fire_at ON triggers (fire_at) WHERE fire_at IS NOT NULL;
CREATE INDEX triggers_event ON triggers (namespace, event_type) WHERE event_type IS NOT NULL;
CREATE INDEX triggers_workflow ON triggers (namespace, workflow, name);

-- What came from outside, and what each event started and answered (JSON): kept for a time, so that the same event again does
-- nothing again.
CREATE TABLE inbound_events (
    number INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    started BLOB NOT NULL,
    answered BLOB NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (namespace, source, id)
);
CREATE INDEX inbound_events_newest ON inbound_events (namespace, number);
CREATE INDEX inbound_events_type ON inbound_events (namespace, type, number);
CREATE INDEX inbound_events_received ON inbound_events (received_at);

-- Executions that wait, PENDING, until fewer than ``slots`` others of their lane run.
CREATE TABLE queued_executions (
    execution INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    lane TEXT NOT NULL,
    slots INTEGER NOT NULL
);
CREATE INDEX queued_executions_lane ON queued_executions (namespace, lane, execution);

ALTER TABLE progress ADD COLUMN lane_name TEXT;
CREATE INDEX progress_lane ON progress (namespace, lane_name)
WHERE lane_name IS NOT NULL AND state IN ('PENDING', 'RUNNING', 'PAUSED');
ALTER TABLE changes ADD COLUMN "trigger" TEXT;

-- The trigger that started an execution, and its lane.
--
-- The table of executions is made anew: a column added at its end would stand behind the input, and a list that
-- reads such a column reads every page of the input. The views that read it are made anew with it.
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
    input BLOB NOT NULL
);

INSERT INTO new_executions
SELECT
    number, id, namespace, workflow, version, digest, labels, priority, batch, batch_index, partition, total,
    created_at, forked_from, traceparent, NULL, NULL, input
FROM executions;

DROP TABLE executions;
ALTER TABLE new_executions RENAME TO executions;

CREATE INDEX executions_newest ON executions (namespace, created_at, id);
CREATE INDEX executions_workflow ON executions (namespace, workflow, created_at, id)
WHERE workflow IS NOT NULL;
CREATE INDEX executions_batch ON executions (batch, batch_index) WHERE batch IS NOT NULL;
CREATE INDEX executions_batch_newest ON executions (batch, created_at, id) WHERE batch IS NOT NULL;
CREATE INDEX executions_digest ON executions (digest);
CREATE INDEX executions_trigger ON executions (namespace, "trigger", created_at, id)
WHERE "trigger" IS NOT NULL;

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
