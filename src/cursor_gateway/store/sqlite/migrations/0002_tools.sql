-- How often a run used tools, edits and commands included: for the table of runs. NULL: it has not ended, or is older.

ALTER TABLE runs ADD COLUMN tool_uses INTEGER;
