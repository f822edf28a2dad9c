-- The names of the message's images, separated by spaces; the files are in the conversation's folder.

ALTER TABLE messages ADD COLUMN images TEXT NOT NULL DEFAULT '';
