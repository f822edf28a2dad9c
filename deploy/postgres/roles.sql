-- Roles with no more rights than they need. Run it once, as the owner of the tables, after `cursor-gateway migrate`:
--
--   psql --set ON_ERROR_STOP=1 --file deploy/postgres/roles.sql "$OWNER_URL"
--
-- Then give each role a password (`ALTER ROLE … PASSWORD`), and use the owner's only for `migrate` and `key`. Neither role can
-- change tables or create others. A runner, which runs strangers' code, cannot see API keys.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cursor_gateway_front') THEN
        CREATE ROLE cursor_gateway_front LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cursor_gateway_runner') THEN
        CREATE ROLE cursor_gateway_runner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
    END IF;
END
$$;

-- Who can connect can read notifications, which have parts of answers, and send some: so nobody else may.
DO $$
BEGIN
    IF (SELECT pg_has_role(datdba, 'USAGE') FROM pg_database WHERE datname = current_database()) THEN
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO cursor_gateway_front, cursor_gateway_runner', current_database());
        EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database());
    ELSE
        RAISE WARNING 'Only the owner of the database can keep other roles from connecting: run this file as the owner.';
    END IF;
END
$$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC, cursor_gateway_front, cursor_gateway_runner;
GRANT USAGE ON SCHEMA public TO cursor_gateway_front, cursor_gateway_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO cursor_gateway_front, cursor_gateway_runner;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO cursor_gateway_front, cursor_gateway_runner;
REVOKE INSERT, UPDATE, DELETE ON cursor_gateway_migrations FROM cursor_gateway_front, cursor_gateway_runner;
REVOKE INSERT, UPDATE, DELETE ON cluster FROM cursor_gateway_front, cursor_gateway_runner;
REVOKE INSERT, UPDATE, DELETE ON api_keys FROM cursor_gateway_front, cursor_gateway_runner;
REVOKE SELECT ON api_keys FROM cursor_gateway_runner;
GRANT SELECT (name, revoked_ms, max_runs, runs_per_day, tokens_per_day) ON api_keys TO cursor_gateway_runner;

-- And for the tables of later migrations, which the same owner makes. A migration takes back what a role must not do.
ALTER DEFAULT PRIVILEGES IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO cursor_gateway_front, cursor_gateway_runner;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO cursor_gateway_front, cursor_gateway_runner;
