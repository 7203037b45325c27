-- incompatible: a release that does not know this migration must not use the schema

-- A completion is one row, the node's: with the time of its commit the row stands for the event too, which has no
-- row of its own. Rows from before have none, and all their events have rows.
ALTER TABLE nodes ADD COLUMN recorded_at bigint;

-- Of an execution with many nodes, the rows that stand for events are found by the page of their numbers.
ALTER TABLE nodes ADD COLUMN page integer;
CREATE INDEX nodes_page ON nodes (execution, page) WHERE page IS NOT NULL;

ALTER TABLE events RENAME TO recorded_events;

-- From now on a migration says whether older releases may go on.
ALTER TABLE schema_migrations RENAME TO migrations;
ALTER TABLE migrations ADD COLUMN incompatible boolean NOT NULL DEFAULT false;

-- A release from before knows nothing of that. It reads schema_migrations when it starts, and writes events with
-- every commit: both tell it to stop.
CREATE FUNCTION refuse_older_release() RETURNS TABLE (
    name text, execution bigint, seq integer, node_id text, body bytea
) LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state', MESSAGE =
        'the database was migrated by a newer release of weft, which this process is too old for: '
        'stop it and start the new release';
END $$;
CREATE VIEW schema_migrations AS SELECT refused.name FROM refuse_older_release() AS refused;
CREATE VIEW events AS
SELECT refused.execution, refused.seq, refused.node_id, refused.body FROM refuse_older_release() AS refused;
CREATE FUNCTION refuse_older_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM refuse_older_release();
END $$;
CREATE TRIGGER refused INSTEAD OF INSERT OR DELETE ON events
FOR EACH ROW EXECUTE FUNCTION refuse_older_event();
