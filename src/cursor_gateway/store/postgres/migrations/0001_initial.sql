-- Keys are internal; ids are public. Times are milliseconds since 1970. Text is compared byte by byte, as in SQLite.

CREATE TABLE conversations (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    title text NOT NULL,
    workspace text NOT NULL,
    mode text NOT NULL,
    model text NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    session_id text,
    fingerprint text COLLATE "C",
    pinned boolean NOT NULL DEFAULT false,
    UNIQUE (owner, id) -- two owners may use the same id
);

CREATE INDEX conversations_by_id ON conversations (id);
CREATE INDEX conversations_newest ON conversations (owner, updated_ms DESC, id DESC);
CREATE INDEX conversations_by_fingerprint ON conversations (owner, fingerprint, updated_ms DESC)
    WHERE fingerprint IS NOT NULL;
CREATE INDEX conversations_oldest ON conversations (updated_ms);
CREATE INDEX conversations_pinned ON conversations (owner, updated_ms DESC) WHERE pinned;

CREATE TABLE runs (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    conversation bigint NOT NULL REFERENCES conversations ON DELETE CASCADE,
    instance text NOT NULL,
    epoch bigint NOT NULL DEFAULT 1, -- incremented by each claim: a writer with an older epoch is rejected
    claim text, -- chosen by whoever claimed it last, to recognize its own claim when the answer was lost
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'completed', 'error')),
    last integer NOT NULL DEFAULT 0, -- the number of the last event
    bytes bigint NOT NULL DEFAULT 0, -- of the events
    model text NOT NULL,
    mode text NOT NULL,
    created text NOT NULL,
    fences text NOT NULL,
    include text NOT NULL, -- JSON
    started_ms bigint NOT NULL,
    first_event_ms bigint,
    ended_ms bigint,
    prompt_tokens bigint,
    completion_tokens bigint,
    total_tokens bigint,
    cached_tokens bigint,
    estimated boolean,
    failure_code text,
    tool_uses integer
) WITH (fillfactor = 50); -- each batch updates `last`: the new version of the row fits into the same page

CREATE INDEX runs_of_conversation ON runs (conversation, key);
CREATE UNIQUE INDEX one_running_run ON runs (conversation) WHERE state = 'running';

CREATE TABLE messages (
    conversation bigint NOT NULL REFERENCES conversations ON DELETE CASCADE,
    number integer NOT NULL,
    role text NOT NULL CHECK (role IN ('user', 'assistant')),
    text text NOT NULL,
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    created_ms bigint NOT NULL,
    PRIMARY KEY (conversation, number)
);

CREATE INDEX messages_of_run ON messages (run);

-- A row for each read of the agent.
CREATE TABLE events (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    first integer NOT NULL,
    count integer NOT NULL,
    epoch bigint NOT NULL, -- of the writer
    data bytea NOT NULL, -- JSON: a list of document events
    PRIMARY KEY (run, first)
);

-- A key names a reply of a run: the one that begins after this event.
CREATE TABLE idempotency (
    owner text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    body_hash text NOT NULL,
    created_ms bigint NOT NULL,
    after integer NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, key)
);

CREATE INDEX idempotency_of_run ON idempotency (run);

-- What a dialect keeps of a request, for each reply of a run.
CREATE TABLE requests (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    after integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, after)
);

-- Open calls of active runs, so that any process can find the run of a result.
CREATE TABLE calls (
    owner text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    PRIMARY KEY (owner, id)
);

CREATE INDEX calls_of_run ON calls (run);

-- The tokens of a run, with its owner as one of them, and the text for snippets. A tsvector has at most one megabyte: a
-- long run has several parts, the first of them with the text.
CREATE TABLE search (
    run bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    part integer NOT NULL,
    parts integer NOT NULL,
    tokens tsvector NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (run, part)
);

CREATE INDEX search_tokens ON search USING gin (tokens) WHERE parts = 1;
CREATE INDEX search_parts ON search (run) WHERE parts > 1;
