-- The caller's place in a trace, as the request that started an execution said.
ALTER TABLE executions ADD COLUMN traceparent text COLLATE "C";
