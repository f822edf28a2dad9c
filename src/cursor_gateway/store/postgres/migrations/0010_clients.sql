-- The name of the program that began the conversation; empty for a person at the page.

ALTER TABLE conversations ADD COLUMN client text NOT NULL DEFAULT '';
