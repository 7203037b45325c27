-- Who changed workflows and aliases and dropped dead letters: writes that belong to no execution's history.
CREATE TABLE changes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    actor text COLLATE "C",
    workflow text COLLATE "C",
    version integer,
    alias text COLLATE "C",
    dead_letter text COLLATE "C"
);
CREATE INDEX changes_newest ON changes (namespace, number);
