-- History in plain columns, for people who bring their own tools: docs/howto/sql.md has what each means. Columns are
-- added and never change. A migration that alters a column which a view reads drops the view first.

CREATE FUNCTION weft_time(microseconds bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT timestamptz 'epoch' + microseconds * interval '1 microsecond' $$;

-- The code that the JSON of an error begins with. It is not read as JSON: a message may hold U+0000.
CREATE FUNCTION weft_error_code(error text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT substring(error FROM '^\{"code":"([a-z_]+)"') $$;

-- The fields of recorded_events.body, an array of MessagePack, as text.
CREATE FUNCTION weft_event_fields(body bytea) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    fields text[] := '{}';
    place integer := 1;
    count integer := get_byte(body, 0) & 15;
    tag integer;
    size integer;
    number bigint;
    part bytea;
BEGIN
    IF get_byte(body, 0) = 220 THEN
        count := get_byte(body, 1) * 256 + get_byte(body, 2);
        place := 3;
    END IF;
    FOR field IN 1..count LOOP
        tag := get_byte(body, place);
        place := place + 1;
        IF tag < 128 THEN
            fields := fields || tag::text;
        ELSIF tag = 192 THEN
            fields := fields || NULL::text;
        ELSIF tag BETWEEN 204 AND 211 THEN
            number := 0;
            FOR further IN 1..(1 << (tag & 3)) LOOP
                number := (number << 8) | get_byte(body, place);
                place := place + 1;
            END LOOP;
            fields := fields || number::text;
        ELSIF tag BETWEEN 160 AND 191 OR tag BETWEEN 196 AND 198 OR tag BETWEEN 217 AND 219 THEN
            size := tag & 31;
            IF tag > 191 THEN
                size := 0;
                FOR further IN 1..(1 << (tag - CASE WHEN tag < 217 THEN 196 ELSE 217 END)) LOOP
                    size := (size << 8) | get_byte(body, place);
                    place := place + 1;
                END LOOP;
            END IF;
            part := substring(body FROM place + 1 FOR size);
            place := place + size;
            -- The digest is bytes. A text column takes no U+0000, which the name of a worker may have.
            fields := fields || CASE
                WHEN field = 10 THEN encode(part, 'hex')
                WHEN position('\x00'::bytea IN part) > 0 THEN encode(part, 'escape')
                ELSE convert_from(part, 'UTF8')
            END;
        ELSE
            RAISE EXCEPTION 'an event has a field of an unknown kind (%)', tag;
        END IF;
    END LOOP;
    RETURN fields;
END $$;

CREATE VIEW weft_nodes AS
SELECT
    executions.namespace,
    executions.id AS execution,
    executions.workflow,
    executions.version,
    nodes.node_id AS node,
    nodes.state,
    nodes.generation,
    CASE WHEN nodes.cached OR nodes.reused THEN 0 ELSE nodes.ended END AS attempts,
    weft_time(nodes.queued_at) AS queued_at,
    weft_time(nodes.started_at) AS started_at,
    weft_time(nodes.finished_at) AS finished_at,
    (nodes.finished_at - nodes.started_at) / 1e6::double precision AS seconds,
    nodes.worker,
    weft_error_code(convert_from(nodes.error, 'UTF8')) AS error_code,
    convert_from(nodes.error, 'UTF8') AS error,
    nodes.reason,
    nodes.cause,
    nodes.cached,
    nodes.reused,
    nodes.output_bytes
FROM nodes JOIN executions ON executions.number = nodes.execution;

CREATE VIEW weft_events AS
SELECT
    executions.namespace,
    executions.id AS execution,
    executions.workflow,
    executions.version,
    told.seq,
    told.at,
    told.type,
    told.generation,
    told.node,
    told.attempt,
    told.state,
    told.worker,
    told.queued_at,
    told.started_at,
    told.finished_at,
    told.due_at,
    told.error_code,
    told.error,
    told.reason,
    told.cause,
    told.actor
FROM (
    SELECT
        recorded_events.execution,
        recorded_events.seq,
        weft_time(fields[1]::bigint) AS at,
        fields[2] AS type,
        fields[3]::integer AS generation,
        recorded_events.node_id AS node,
        fields[4]::integer AS attempt,
        fields[5] AS state,
        fields[6] AS worker,
        weft_time(fields[7]::bigint) AS queued_at,
        weft_time(fields[8]::bigint) AS started_at,
        weft_time(fields[9]::bigint) AS finished_at,
        weft_time(fields[14]::bigint) AS due_at,
        weft_error_code(fields[13]) AS error_code,
        fields[13] AS error,
        fields[11] AS reason,
        fields[12] AS cause,
        fields[15] AS actor
    FROM recorded_events, LATERAL weft_event_fields(recorded_events.body) AS fields
    UNION ALL
    SELECT
        nodes.execution,
        nodes.seq,
        weft_time(nodes.recorded_at),
        'node.completed',
        nodes.generation,
        nodes.node_id,
        CASE WHEN nodes.cached OR nodes.reused THEN 0 ELSE nodes.attempt END,
        'COMPLETED',
        nodes.worker,
        weft_time(nodes.queued_at),
        weft_time(nodes.started_at),
        weft_time(nodes.finished_at),
        NULL, NULL, NULL, NULL, NULL, NULL
    FROM nodes WHERE nodes.recorded_at IS NOT NULL
) AS told
JOIN executions ON executions.number = told.execution;
