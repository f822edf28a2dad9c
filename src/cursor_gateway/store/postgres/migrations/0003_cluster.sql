-- Several gateways on one database: who they are, and what they ask of each other.

ALTER TABLE conversations ADD COLUMN volume text COLLATE "C" NOT NULL DEFAULT ''; -- where its workspace is
ALTER TABLE runs ADD COLUMN waiting boolean NOT NULL DEFAULT false; -- for its caller, not for its agent

CREATE INDEX runs_of_member ON runs (instance) WHERE state = 'running';

-- A process raises its beat every few seconds. One whose beat stands still is taken for dead, and its row deleted.
CREATE TABLE members (
    id text COLLATE "C" PRIMARY KEY,
    role text NOT NULL CHECK (role IN ('all', 'front', 'runner')),
    host text NOT NULL,
    process text NOT NULL, -- its name on the host
    volumes text[] COLLATE "C" NOT NULL,
    capacity integer NOT NULL, -- runs at once
    busy integer NOT NULL DEFAULT 0,
    version text NOT NULL,
    beat bigint NOT NULL,
    draining boolean NOT NULL DEFAULT false
);

-- What a front asks of a runner. The epoch is raised by each claim: only who claimed it last may act on it.
CREATE TABLE commands (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    owner text COLLATE "C" NOT NULL,
    dedupe text COLLATE "C", -- of two with the same, the second waits until the first is done
    front text COLLATE "C" NOT NULL, -- who waits for the outcome
    target text COLLATE "C", -- the runner that must take it; NULL: any with the volume
    volume text COLLATE "C", -- NULL: any
    run_id text COLLATE "C" NOT NULL, -- of the run that it may start
    takes_place boolean NOT NULL, -- it may start a run
    body bytea NOT NULL,
    state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'claimed', 'done')),
    epoch bigint NOT NULL DEFAULT 0,
    runner text COLLATE "C",
    outcome bytea, -- NULL when it is done: it was withdrawn
    created timestamptz NOT NULL DEFAULT now(),
    ended timestamptz
);

CREATE UNIQUE INDEX commands_alike ON commands (owner, dedupe) WHERE state <> 'done' AND dedupe IS NOT NULL;
CREATE INDEX commands_open ON commands (key) WHERE state <> 'done';
CREATE INDEX commands_ended ON commands (ended) WHERE state = 'done';

-- How many clients of each front read a run; who is named here is told when the run has new events.
CREATE TABLE watchers (
    run_id text COLLATE "C" NOT NULL,
    member text COLLATE "C" NOT NULL,
    readers integer NOT NULL,
    read_up_to integer NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, member)
);
