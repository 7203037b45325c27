-- What is to be told to URLs outside: added by the commit that it tells of, and sent later. due_at: when it may be
-- sent next, or when the lease of whoever sends it ends; NULL: it was delivered, or is not sent any more.
CREATE TABLE notifications (
    id TEXT PRIMARY KEY,
    execution INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    generation INTEGER NOT NULL,
    reason TEXT NOT NULL,
    url TEXT NOT NULL,
    told BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    due_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'pending',
    ended_at INTEGER,
    error BLOB
);
CREATE INDEX notifications_execution ON notifications (execution);
CREATE INDEX notifications_due ON notifications (due_at) WHERE due_at IS NOT NULL;
