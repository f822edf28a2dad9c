-- What is in the marker file of a shared volume: two runners that call different disks by the same name find out.

ALTER TABLE volumes ADD COLUMN mark text COLLATE "C";
