-- Running runs that go on elsewhere if their process dies, once: the command that continues each of them.

CREATE TABLE resumable (
    run bigint PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
    command bytea NOT NULL,
    needs text[] COLLATE "C" NOT NULL
);
