-- Who changed workflows and aliases and dropped dead letters: writes that belong to no execution's history.
-- AUTOINCREMENT: the number of a row that was purged is a cursor of somebody, and is not given again.
CREATE TABLE changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    action TEXT NOT NULL,
    actor TEXT,
    workflow TEXT,
    version INTEGER,
    alias TEXT,
    dead_letter TEXT
);
CREATE INDEX changes_newest ON changes (namespace, number);
