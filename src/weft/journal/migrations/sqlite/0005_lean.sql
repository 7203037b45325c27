-- A completion is one row, the node's: with the time of its commit the row stands for the event too, which has no
-- row of its own. Rows from before have none, and their events are all in ``events``.
ALTER TABLE nodes ADD COLUMN recorded_at INTEGER;
CREATE INDEX nodes_recorded ON nodes (execution, seq) WHERE recorded_at IS NOT NULL;
