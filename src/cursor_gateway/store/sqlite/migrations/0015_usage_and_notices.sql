-- What each owner used on a day (UTC), by model; it stays when conversations are deleted.

CREATE TABLE token_usage (
    owner TEXT NOT NULL,
    day TEXT NOT NULL,
    model TEXT NOT NULL,
    runs INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    PRIMARY KEY (owner, day, model)
) WITHOUT ROWID;

INSERT INTO token_usage (owner, day, model, runs, prompt_tokens, completion_tokens, cached_tokens)
SELECT conversations.owner, date(ended_ms / 1000, 'unixepoch'), runs.model, count(*), coalesce(sum(prompt_tokens), 0),
    coalesce(sum(completion_tokens), 0), sum(coalesce(cached_tokens, 0))
FROM runs JOIN conversations ON conversations.key = runs.conversation
WHERE conversations.owner IS NOT NULL AND date(ended_ms / 1000, 'unixepoch') IS NOT NULL AND total_tokens IS NOT NULL
GROUP BY 1, 2, 3;

-- Messages for webhooks, stored together with what they are about, until they are delivered. `number` is that of the
-- event with which the run waits; 0: it has ended.

CREATE TABLE notices (
    webhook TEXT NOT NULL,
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    run TEXT NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (webhook, id)
) WITHOUT ROWID;

CREATE INDEX notices_by_time ON notices (due_ms);
