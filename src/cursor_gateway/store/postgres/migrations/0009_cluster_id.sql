-- Names the cluster where processes of several clusters meet: on the disk of a machine.

ALTER TABLE cluster ADD COLUMN id text COLLATE "C" NOT NULL DEFAULT gen_random_uuid()::text;
