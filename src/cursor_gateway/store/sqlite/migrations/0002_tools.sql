-- The number of tool calls of a run, including edits and commands. NULL: it has not ended, or is older than this column.

ALTER TABLE runs ADD COLUMN tool_uses INTEGER;
