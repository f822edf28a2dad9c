-- The index has the tokens of `stages/search_tokens.py`, separated by spaces, and the scopes of the run. A token counts
-- once in a run and has no position. The row's number is the run's key, negative: FTS5 goes through rows upwards only, and
-- the newest are wanted first. Prefixes of two and three characters have their own entries.

DROP TABLE search;

CREATE VIRTUAL TABLE search USING fts5 (
    tokens, text UNINDEXED, tokenize = "ascii tokenchars '_'", detail = column, prefix = '2 3'
);

-- All runs are indexed again in the background, or before the next search.
INSERT OR IGNORE INTO unindexed (run) SELECT key FROM runs WHERE state <> 'running';
