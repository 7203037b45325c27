-- The attempts that were in somebody's hand when no more could start: while an execution is paused, and when its engine
-- stopped. A rebuild then knows what was never handed out.
ALTER TABLE progress ADD COLUMN halt bytea;
