-- What a runner has and a request needs; which protocol a process speaks.

ALTER TABLE members ADD COLUMN labels text[] COLLATE "C" NOT NULL DEFAULT '{}', ADD COLUMN level integer NOT NULL DEFAULT 1;
ALTER TABLE commands ADD COLUMN needs text[] COLLATE "C" NOT NULL DEFAULT '{}';

-- The oldest protocol whose processes can use these tables. A migration that they could not bear raises it.
CREATE TABLE cluster (level integer NOT NULL);

INSERT INTO cluster VALUES (1);
