-- Every execution is committed result by result: there is no other durability to tell it from.
ALTER TABLE executions DROP COLUMN checkpoint;
