-- API keys, and what each used on a day (UTC, by the clock of the database).

CREATE TABLE api_keys (
    name text COLLATE "C" PRIMARY KEY,
    hash text COLLATE "C" NOT NULL UNIQUE,
    created_ms bigint NOT NULL,
    revoked_ms bigint,
    max_runs integer,
    runs_per_day integer,
    tokens_per_day bigint
);

CREATE TABLE key_usage (
    name text COLLATE "C" NOT NULL,
    day date NOT NULL,
    runs integer NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (name, day)
);
