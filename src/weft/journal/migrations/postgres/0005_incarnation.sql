-- The incarnation of the database. Unlogged: PostgreSQL empties it in crash recovery, and on a standby or a backup.
CREATE UNLOGGED TABLE incarnation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id text NOT NULL,
    -- System identifier and timeline, and the start of the server process that the row was last confirmed on.
    line text NOT NULL,
    started text NOT NULL
);
