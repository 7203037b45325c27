-- What nodes printed and logged. A chunk is some lines of one attempt (JSON); its lines have the numbers behind
-- first_seq, up to last_seq. A head is the last number that an execution has given.
CREATE TABLE log_heads (
    execution INTEGER PRIMARY KEY,
    last_seq INTEGER NOT NULL
);

CREATE TABLE log_chunks (
    execution INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL,
    lines_before INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX log_chunks_seq ON log_chunks (execution, last_seq);
CREATE UNIQUE INDEX log_chunks_attempt ON log_chunks (execution, node_id, attempt, number);
