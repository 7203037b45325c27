-- Nodes that wait for a time, an answer or an event. The truth is nodes.parked; this is where waits are found by
-- their due time, their signal or their event. settled_at: somebody answered, and the hot state is still to be told.
ALTER TABLE progress ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0;
ALTER TABLE progress ADD COLUMN mailbox INTEGER NOT NULL DEFAULT 0;
-- Of a node that polls: when it became ready, and how many looks have ended.
ALTER TABLE nodes ADD COLUMN polled TEXT;
CREATE TABLE waits (
    execution INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    since INTEGER NOT NULL,
    due_at INTEGER,
    settled_at INTEGER,
    generation INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    match_keys TEXT,
    match_digest TEXT,
    PRIMARY KEY (execution, node_id)
);
CREATE INDEX waits_due ON waits (due_at) WHERE due_at IS NOT NULL AND settled_at IS NULL;
CREATE INDEX waits_untold ON waits (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX waits_open ON waits (namespace, since, execution) WHERE kind = 'signal' AND settled_at IS NULL;
CREATE INDEX waits_events ON waits (namespace, name, match_keys, match_digest)
WHERE kind = 'event' AND settled_at IS NULL;
-- The mailbox of an execution: signals that came before anybody waited for them.
CREATE TABLE signals (
    execution INTEGER NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    output BLOB,
    blob TEXT,
    output_bytes INTEGER NOT NULL,
    fits TEXT NOT NULL,
    PRIMARY KEY (execution, number)
);
CREATE INDEX signals_blob ON signals (blob) WHERE blob IS NOT NULL;
