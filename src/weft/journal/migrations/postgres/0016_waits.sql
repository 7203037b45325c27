-- Nodes that wait for a time, an answer or an event. The truth is nodes.parked; this is where waits are found by
-- their due time, their signal or their event. settled_at: somebody answered, and the hot state is still to be told.
ALTER TABLE progress ADD COLUMN waiting integer NOT NULL DEFAULT 0;
ALTER TABLE progress ADD COLUMN mailbox integer NOT NULL DEFAULT 0;
-- Of a node that polls: when it became ready, and how many looks have ended.
ALTER TABLE nodes ADD COLUMN polled bytea;
CREATE TABLE waits (
    execution bigint NOT NULL,
    since bigint NOT NULL,
    due_at bigint,
    settled_at bigint,
    generation integer NOT NULL,
    attempt integer NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    match_keys text COLLATE "C",
    match_digest text COLLATE "C",
    PRIMARY KEY (execution, node_id)
);
CREATE INDEX waits_due ON waits (due_at) WHERE due_at IS NOT NULL AND settled_at IS NULL;
CREATE INDEX waits_untold ON waits (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX waits_open ON waits (namespace, since, execution) WHERE kind = 'signal' AND settled_at IS NULL;
CREATE INDEX waits_events ON waits (namespace, name, match_keys, match_digest)
WHERE kind = 'event' AND settled_at IS NULL;
-- The mailbox of an execution: signals that came before anybody waited for them.
CREATE TABLE signals (
    execution bigint NOT NULL,
    output_bytes bigint NOT NULL,
    number integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    blob text COLLATE "C",
    output bytea,
    fits bytea NOT NULL,
    PRIMARY KEY (execution, number)
);
CREATE INDEX signals_blob ON signals (blob) WHERE blob IS NOT NULL;
