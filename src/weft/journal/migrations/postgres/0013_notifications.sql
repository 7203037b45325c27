-- What is to be told to URLs outside: added by the commit that it tells of, and sent later. due_at: when it may be
-- sent next, or when the lease of whoever sends it ends; NULL: it was delivered, or is not sent any more.
CREATE TABLE notifications (
    execution bigint NOT NULL,
    created_at bigint NOT NULL,
    due_at bigint,
    ended_at bigint,
    generation integer NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    id text COLLATE "C" PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'pending',
    url text COLLATE "C" NOT NULL,
    error bytea,
    told bytea NOT NULL
);
CREATE INDEX notifications_execution ON notifications (execution);
CREATE INDEX notifications_due ON notifications (due_at) WHERE due_at IS NOT NULL;
