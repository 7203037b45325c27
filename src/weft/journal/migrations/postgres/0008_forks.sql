-- A fork: the execution that it was made of, and the nodes that it took over from there as they had settled.
ALTER TABLE executions ADD COLUMN forked_from text COLLATE "C";
ALTER TABLE nodes ADD COLUMN reused boolean NOT NULL DEFAULT false;
