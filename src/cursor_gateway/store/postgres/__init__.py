"""The history in a PostgreSQL database. Needs the extra `postgres`; nothing else imports psycopg."""
