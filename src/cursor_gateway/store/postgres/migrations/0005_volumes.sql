-- The volumes that members have had. Of a request that names one, a front knows that a runner with it may come back.

CREATE TABLE volumes (name text COLLATE "C" PRIMARY KEY);

INSERT INTO volumes SELECT unnest(volumes) FROM members UNION SELECT volume FROM conversations WHERE volume <> '';
