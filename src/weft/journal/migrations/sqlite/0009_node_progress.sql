-- How far nodes say they have come: the last that an attempt of a node said (JSON).
CREATE TABLE node_progress (
    execution INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (execution, node_id)
);
