"""`cursor-gateway migrate`: create or update the tables of the database."""

import asyncio

import click

from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.errors import SettingsError


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway migrate --dry-run
      cursor-gateway migrate

    \b
    The gateway never migrates by itself: `serve` does not start if the database has another format.""",
)
@config
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
def migrate(config: str | None, dry_run: bool) -> int:
    """Create or update the tables of the PostgreSQL database that the setting `store` names."""
    from cursor_gateway.cli.stores import database_url

    url = database_url(configuration(config).settings)
    if not url:
        raise SettingsError(
            "there is nothing to migrate: the history is in a file, which is updated when the gateway starts.",
            param="store",
        )
    from cursor_gateway.store.postgres import schema

    found = asyncio.run(schema.missing(url) if dry_run else schema.migrate(url))
    for migration in found:
        click.echo(f"{'would apply' if dry_run else 'applied'} {migration.number:04} {migration.name}")
    if not found:
        click.echo(f"The database is up to date (format {schema.newest()}).")
    return 0
