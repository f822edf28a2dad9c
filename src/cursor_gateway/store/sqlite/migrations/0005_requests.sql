-- What a dialect keeps of a request, so that the answer can be looked up by its id: for each reply of a run, which
-- begins after the event of this number.

CREATE TABLE requests (
    run INTEGER NOT NULL REFERENCES runs (key),
    after INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (run, after)
) WITHOUT ROWID;
