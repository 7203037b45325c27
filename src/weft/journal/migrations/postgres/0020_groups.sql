-- The group of an execution, and its lane once it is out of the queue of the group.
ALTER TABLE progress ADD COLUMN group_name text COLLATE "C";
ALTER TABLE progress ADD COLUMN group_lane text COLLATE "C";
CREATE INDEX progress_group ON progress (namespace, group_lane)
WHERE group_lane IS NOT NULL AND state IN ('PENDING', 'RUNNING', 'PAUSED');
CREATE INDEX progress_group_of ON progress (execution, group_name) WHERE group_name IS NOT NULL;
CREATE INDEX progress_group_name ON progress (namespace, group_name, created_at, id)
WHERE group_name IS NOT NULL;

-- cancels: what is before it in the queue of a group is cancelled. since: when it was accepted, the order of the queue.
-- group_lane, group_slots: the queue to which it goes on.
ALTER TABLE queued_executions ADD COLUMN cancels integer NOT NULL DEFAULT 0;
ALTER TABLE queued_executions ADD COLUMN since bigint NOT NULL DEFAULT 0;
ALTER TABLE queued_executions ADD COLUMN group_lane text COLLATE "C";
ALTER TABLE queued_executions ADD COLUMN group_slots integer NOT NULL DEFAULT 0;
DROP INDEX queued_executions_lane;
CREATE INDEX queued_executions_lane ON queued_executions (namespace, lane, since, execution);

-- Whoever decides which executions of a lane run locks one of these.
CREATE TABLE lane_locks (bucket integer PRIMARY KEY);
INSERT INTO lane_locks SELECT generate_series(0, 63);
