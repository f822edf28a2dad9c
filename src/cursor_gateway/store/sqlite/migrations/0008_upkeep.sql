-- How often the index was merged since it was rebuilt.
CREATE TABLE upkeep (merges INTEGER NOT NULL);

INSERT INTO upkeep (merges) VALUES (0);
