-- The names of the message's images, separated by spaces; the files are in the conversation's folder.

ALTER TABLE messages ADD COLUMN images text NOT NULL DEFAULT '';
