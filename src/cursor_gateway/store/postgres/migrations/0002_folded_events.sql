-- The rows of a run that has ended are combined into few large ones, compressed with zlib.

ALTER TABLE events ADD COLUMN deflated boolean NOT NULL DEFAULT false;
ALTER TABLE runs ADD COLUMN folded boolean NOT NULL DEFAULT false;

CREATE INDEX runs_to_fold ON runs (key) WHERE state <> 'running' AND NOT folded;
