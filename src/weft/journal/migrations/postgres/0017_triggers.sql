-- The rules by which executions start. revision: raised by every change that somebody makes. fire_at: when the next
-- due time fires; NULL: no schedule, or disabled. event_type: NULL where it listens to no event now.
CREATE TABLE triggers (
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    next_at bigint,
    fire_at bigint,
    skipped_at bigint,
    skipped bigint NOT NULL DEFAULT 0,
    revision integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    event_type text COLLATE "C",
    document bytea NOT NULL,
    error bytea,
    PRIMARY KEY (namespace, name)
);
CREATE INDEX triggers_fire_at ON triggers (fire_at) WHERE fire_at IS NOT NULL;
CREATE INDEX triggers_event ON triggers (namespace, event_type) WHERE event_type IS NOT NULL;
CREATE INDEX triggers_workflow ON triggers (namespace, workflow, name);

-- What came from outside, and what each event started and answered (JSON): kept for a time, so that the same event again does
-- nothing again.
CREATE TABLE inbound_events (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received_at bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    started bytea NOT NULL,
    answered bytea NOT NULL,
    UNIQUE (namespace, source, id)
);
CREATE INDEX inbound_events_newest ON inbound_events (namespace, number);
CREATE INDEX inbound_events_type ON inbound_events (namespace, type, number);
CREATE INDEX inbound_events_received ON inbound_events (received_at);

-- Executions that wait, PENDING, until fewer than ``slots`` others of their lane run.
CREATE TABLE queued_executions (
    execution bigint PRIMARY KEY,
    slots integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL
);
CREATE INDEX queued_executions_lane ON queued_executions (namespace, lane, execution);

ALTER TABLE executions ADD COLUMN trigger text COLLATE "C";
ALTER TABLE executions ADD COLUMN lane text COLLATE "C";
CREATE INDEX executions_trigger ON executions (namespace, trigger, created_at, id) WHERE trigger IS NOT NULL;
ALTER TABLE progress ADD COLUMN lane_name text COLLATE "C";
CREATE INDEX progress_lane ON progress (namespace, lane_name)
WHERE lane_name IS NOT NULL AND state IN ('PENDING', 'RUNNING', 'PAUSED');
ALTER TABLE changes ADD COLUMN trigger text COLLATE "C";
