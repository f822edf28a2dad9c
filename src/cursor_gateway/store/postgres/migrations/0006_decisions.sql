-- Calls of the run were rejected, and nobody has decided about them yet. The conversation waits for that while it is its
-- newest run.

ALTER TABLE runs ADD COLUMN needs_decision boolean NOT NULL DEFAULT false;
