-- What each owner used on a day (UTC), by model; it stays when conversations are deleted.

CREATE TABLE token_usage (
    owner text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    runs bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    PRIMARY KEY (owner, day, model)
);

INSERT INTO token_usage (owner, day, model, runs, prompt_tokens, completion_tokens, cached_tokens)
SELECT conversations.owner, to_char(to_timestamp(ended_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), runs.model,
    count(*), coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0), sum(coalesce(cached_tokens, 0))
FROM runs JOIN conversations ON conversations.key = runs.conversation
WHERE ended_ms IS NOT NULL AND total_tokens IS NOT NULL
GROUP BY 1, 2, 3;

-- Messages for webhooks, stored together with what they are about, until they are delivered. `number` is that of the
-- event with which the run waits; 0: it has ended.

CREATE TABLE notices (
    webhook text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    run text COLLATE "C" NOT NULL,
    number integer NOT NULL,
    body bytea NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    due_ms bigint NOT NULL,
    PRIMARY KEY (webhook, id)
);

CREATE INDEX notices_by_time ON notices (due_ms);
