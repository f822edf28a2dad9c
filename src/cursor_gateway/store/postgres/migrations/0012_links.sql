-- The hash of the token of a read-only link to the conversation, and when it was created; NULL: there is none.

ALTER TABLE conversations ADD COLUMN link_hash text, ADD COLUMN linked_ms bigint;
CREATE UNIQUE INDEX conversations_by_link ON conversations (link_hash) WHERE link_hash IS NOT NULL;
