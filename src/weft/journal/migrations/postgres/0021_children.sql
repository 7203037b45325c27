-- Executions that other executions have called. The truth is progress.parent, the node that waits and the generation
-- that the child works for; this is where children are found by their parent and by what is still to be done.
-- phase: open; ended, and the parent was not told; told.
ALTER TABLE executions ADD COLUMN parent_id text COLLATE "C";
ALTER TABLE progress ADD COLUMN parent bytea;
-- Of a node that calls a workflow: what it runs, and as which execution.
ALTER TABLE nodes ADD COLUMN called bytea;
CREATE TABLE children (
    execution bigint PRIMARY KEY,
    parent bigint NOT NULL,
    changed_at bigint NOT NULL,
    generation integer NOT NULL,
    attempt integer NOT NULL,
    place integer,
    phase text COLLATE "C" NOT NULL,
    node_id text COLLATE "C" NOT NULL
);
CREATE INDEX children_parent ON children (parent, node_id, attempt, place);
CREATE INDEX children_open ON children (parent) WHERE phase = 'open';
CREATE INDEX children_untold ON children (changed_at) WHERE phase = 'ended';
-- Lists of executions leave children out.
DROP INDEX executions_newest;
CREATE INDEX executions_newest ON executions (namespace, created_at, id) WHERE parent_id IS NULL;
DROP INDEX executions_workflow;
CREATE INDEX executions_workflow ON executions (namespace, workflow, created_at, id)
WHERE workflow IS NOT NULL AND parent_id IS NULL;
CREATE INDEX executions_parent ON executions (namespace, parent_id, created_at, id) WHERE parent_id IS NOT NULL;
