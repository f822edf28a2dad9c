-- For psql 15 or newer, after roles.sql: sets the passwords of the roles to those in the environment.
\getenv front FRONT_PASSWORD
\getenv runner RUNNER_PASSWORD
ALTER ROLE cursor_gateway_front PASSWORD :'front';
ALTER ROLE cursor_gateway_runner PASSWORD :'runner';
