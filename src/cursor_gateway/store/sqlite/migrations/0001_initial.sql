-- Keys are internal; ids are public. Times are milliseconds since 1970.

CREATE TABLE conversations (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    owner TEXT, -- NULL: deleted; nobody finds it, and its rows go step by step
    title TEXT NOT NULL,
    workspace TEXT NOT NULL,
    mode TEXT NOT NULL,
    model TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    session_id TEXT,
    fingerprint TEXT
);

-- Two owners may use the same id without noticing.
CREATE UNIQUE INDEX conversations_by_id ON conversations (owner, id);
CREATE INDEX conversations_newest ON conversations (owner, updated_ms DESC, id DESC);
CREATE INDEX conversations_by_fingerprint ON conversations (owner, fingerprint, updated_ms DESC)
    WHERE fingerprint IS NOT NULL;
CREATE INDEX conversations_oldest ON conversations (updated_ms) WHERE owner IS NOT NULL;

CREATE TABLE runs (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    conversation INTEGER NOT NULL REFERENCES conversations (key),
    instance TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'completed', 'error')),
    model TEXT NOT NULL,
    mode TEXT NOT NULL,
    created TEXT NOT NULL,
    fences TEXT NOT NULL,
    include TEXT NOT NULL, -- JSON
    started_ms INTEGER NOT NULL,
    first_event_ms INTEGER,
    ended_ms INTEGER,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    total_tokens INTEGER,
    cached_tokens INTEGER,
    estimated INTEGER,
    failure_code TEXT
);

CREATE INDEX runs_of_conversation ON runs (conversation, key);
CREATE INDEX runs_unfinished ON runs (conversation) WHERE state = 'running';

CREATE TABLE messages (
    conversation INTEGER NOT NULL REFERENCES conversations (key),
    number INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    text TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (key),
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (conversation, number)
) WITHOUT ROWID;

CREATE INDEX messages_of_run ON messages (run);

-- A row for each read of the agent. Without a rowid the rows of a run lie together, and a batch is one write.
CREATE TABLE events (
    run INTEGER NOT NULL REFERENCES runs (key),
    first_number INTEGER NOT NULL,
    count INTEGER NOT NULL,
    data BLOB NOT NULL, -- JSON: a list of document events
    PRIMARY KEY (run, first_number)
) WITHOUT ROWID;

CREATE TABLE idempotency (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (key),
    body_hash TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_of_run ON idempotency (run);

-- A row for each run: what its messages and documents say, and, as words, whose it is. Its number is the run's key,
-- negative: the newest are asked for first, and FTS5 skips what does not match only on its way up. The prefixes are for
-- words that are only begun; without them each look-up would gather all words that begin so.
CREATE VIRTUAL TABLE search USING fts5 (
    scope, words, tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3'
);
