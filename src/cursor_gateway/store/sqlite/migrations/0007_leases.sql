-- Incremented when another process takes over the run: a writer with an older epoch is rejected.
ALTER TABLE runs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;

-- Open calls of active runs, so that any process can find the run of a result.
CREATE TABLE calls (
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (key),
    PRIMARY KEY (owner, id)
) WITHOUT ROWID;

CREATE INDEX calls_of_run ON calls (run);
