-- An execution in which only waits are open leaves the hot state: the sweep, which asks for executions that the store has
-- lost, passes over it.
ALTER TABLE progress ADD COLUMN evicted INTEGER NOT NULL DEFAULT 0;
CREATE INDEX progress_hot ON progress (execution)
WHERE NOT evicted AND state IN ('PENDING', 'RUNNING', 'PAUSED');
CREATE INDEX progress_evicted_deadline ON progress (deadline_at)
WHERE evicted AND deadline_at IS NOT NULL AND state IN ('PENDING', 'RUNNING', 'PAUSED');
