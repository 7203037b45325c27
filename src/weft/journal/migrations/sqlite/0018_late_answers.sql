-- Waits that began behind an inbound event and looked back: each event ends one wait of an execution. What the event did when
-- it came stays as it is, because the same event again has the same answer.
CREATE TABLE late_answers (
    event INTEGER NOT NULL,
    execution_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    PRIMARY KEY (event, execution_id)
) WITHOUT ROWID;
