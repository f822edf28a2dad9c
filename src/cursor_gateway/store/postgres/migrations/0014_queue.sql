-- Requests that wait for a runner for as long as it takes: commands that no process has to wait for. Older processes
-- take none that are `waiting`.

ALTER TABLE commands
    DROP CONSTRAINT commands_state_check,
    ADD CONSTRAINT commands_state_check CHECK (state IN ('waiting', 'queued', 'claimed', 'done')),
    ADD COLUMN priority integer NOT NULL DEFAULT 0,
    ADD COLUMN due timestamptz, -- since when it waits, or when it is to start; NULL: it is no such request
    ADD COLUMN expires timestamptz,
    ADD COLUMN conversation text COLLATE "C" NOT NULL DEFAULT '', -- its id; empty: not known yet
    ADD COLUMN body_hash text NOT NULL DEFAULT '',
    ADD COLUMN about bytea, -- what is shown of it
    ADD COLUMN kept bytea NOT NULL DEFAULT '', -- for its dialect
    ADD COLUMN failure bytea; -- why it was not started

CREATE INDEX commands_of_run ON commands (run_id) WHERE due IS NOT NULL;
CREATE INDEX commands_waiting ON commands (owner, priority DESC, due, key) WHERE state = 'waiting';
CREATE INDEX commands_of_conversation ON commands (owner, conversation) WHERE due IS NOT NULL;
