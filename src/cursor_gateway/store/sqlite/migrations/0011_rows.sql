-- A table without a rowid compares whole rows, and a row here may be a prompt or a request of many megabytes: each look-up
-- among them read one, and a request with thousands of messages made as many look-ups. An index has the numbers alone.

CREATE TABLE new_messages (
    key INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations (key),
    number INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    text TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (key),
    created_ms INTEGER NOT NULL
);

INSERT INTO new_messages (conversation, number, role, text, run, created_ms)
    SELECT conversation, number, role, text, run, created_ms FROM messages ORDER BY conversation, number;

DROP TABLE messages;

ALTER TABLE new_messages RENAME TO messages;

CREATE UNIQUE INDEX messages_of_conversation ON messages (conversation, number);
CREATE INDEX messages_of_run ON messages (run);

CREATE TABLE new_requests (
    key INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (key),
    after INTEGER NOT NULL,
    data BLOB NOT NULL
);

INSERT INTO new_requests (run, after, data) SELECT run, after, data FROM requests ORDER BY run, after;

DROP TABLE requests;

ALTER TABLE new_requests RENAME TO requests;

CREATE UNIQUE INDEX requests_of_run ON requests (run, after);

-- The version of the schema, also in the header: if both are newer than a program knows, the file is no damaged one.
ALTER TABLE upkeep ADD COLUMN version INTEGER NOT NULL DEFAULT 11;
