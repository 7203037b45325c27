-- What nodes printed and logged. A chunk is some lines of one attempt (JSON); its lines have the numbers behind
-- first_seq, up to last_seq. A head is the last number that an execution has given: it is locked by whoever writes
-- chunks of that execution, so that they are committed in the order of their numbers.
CREATE TABLE log_heads (
    execution bigint PRIMARY KEY,
    last_seq bigint NOT NULL
) WITH (fillfactor = 60);

CREATE TABLE log_chunks (
    execution bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    attempt integer NOT NULL,
    number integer NOT NULL,
    lines_before integer NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    body bytea NOT NULL
);
CREATE UNIQUE INDEX log_chunks_seq ON log_chunks (execution, last_seq);
CREATE UNIQUE INDEX log_chunks_attempt ON log_chunks (execution, node_id, attempt, number);
