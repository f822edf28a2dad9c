-- Requests that wait to be started. The id is that of the run; the epoch is raised by each claim.

CREATE TABLE queue (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    conversation TEXT NOT NULL, -- its id; empty: not known yet
    dedupe TEXT, -- of two with the same, only one can wait
    body_hash TEXT NOT NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'claimed', 'begun', 'failed')),
    epoch INTEGER NOT NULL DEFAULT 0,
    instance TEXT, -- the gateway that has claimed it
    created_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    about BLOB NOT NULL,
    kept BLOB NOT NULL, -- for its dialect
    body BLOB NOT NULL, -- the request; empty when it has begun or failed
    failure BLOB
);

CREATE UNIQUE INDEX queue_alike ON queue (owner, dedupe) WHERE state IN ('waiting', 'claimed') AND dedupe IS NOT NULL;
CREATE INDEX queue_open ON queue (owner, priority DESC, due_ms, key) WHERE state IN ('waiting', 'claimed');
CREATE INDEX queue_of_conversation ON queue (owner, conversation);
CREATE INDEX queue_ended ON queue (ended_ms) WHERE ended_ms IS NOT NULL;
