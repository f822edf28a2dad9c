-- A run that pauses gives several replies. A key names one of them: the reply that begins after this event.

ALTER TABLE idempotency ADD COLUMN after INTEGER NOT NULL DEFAULT 0;
