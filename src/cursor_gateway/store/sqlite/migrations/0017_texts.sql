-- What runs are found by, for the results of a search. Earlier versions stored it in `search`, whose rows then filled
-- their pages badly.

CREATE TABLE texts (
    run INTEGER PRIMARY KEY REFERENCES runs (key),
    text TEXT NOT NULL
);
