-- A batch's key is one number, the run's key times 2^32 plus the number of its first event. A table with two columns as its
-- key compares whole rows, and a row here may be a file: it read megabytes to find a place among them.

CREATE TABLE batches (
    place INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    data BLOB NOT NULL -- JSON: a list of document events
);

INSERT INTO batches (place, count, data)
    SELECT run << 32 | first_number, count, data FROM events ORDER BY run, first_number;

DROP TABLE events;

ALTER TABLE batches RENAME TO events;

-- Runs that have ended and are not indexed yet.
CREATE TABLE unindexed (run INTEGER PRIMARY KEY);
