-- Raised whenever another process takes the run over: a writer with an older epoch is refused.
ALTER TABLE runs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;

-- Calls that running runs have asked their callers for, so that any process finds the run of a result.
CREATE TABLE calls (
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (key),
    PRIMARY KEY (owner, id)
) WITHOUT ROWID;

CREATE INDEX calls_of_run ON calls (run);
