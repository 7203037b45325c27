-- How far nodes say they have come: the last that an attempt of a node said (JSON).
CREATE TABLE node_progress (
    execution bigint NOT NULL,
    attempt integer NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (execution, node_id)
) WITH (fillfactor = 60);
