-- Conversations that are listed at the top.

ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;

CREATE INDEX conversations_pinned ON conversations (owner, updated_ms DESC) WHERE pinned = 1;
