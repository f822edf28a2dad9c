"""`cursor-gateway key`: create, list and revoke API keys. Only their hashes are stored."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from cursor_gateway.cli.configuration import config, configuration, usual_file
from cursor_gateway.cli.output import Trouble, aside
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import hash_key, is_name, is_reserved, new_key

if TYPE_CHECKING:
    from cursor_gateway.store.postgres.keys import KeyEntry, KeyTable

_Result = TypeVar("_Result")


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway key laptop
      cursor-gateway key ci > ci.key       only the key is written to standard output
      cursor-gateway key bot --max-runs 2 --tokens-per-day 5000000
      cursor-gateway key bot --revoke
      cursor-gateway key --list

    \b
    The key is not stored: the gateway needs only its hash. If the setting `store` names a database,
    the hash is stored there, and all gateways accept the key within seconds; limits, `--list` and
    `--revoke` need such a database.
    Exit status: 0 success; 1 there is no valid key with this name; 2 the database cannot be used.""",
)
@config
@click.argument("name", required=False)
@click.option("--max-runs", type=click.IntRange(min=1), metavar="N", help="The maximum number of runs at once.")
@click.option(
    "--runs-per-day", type=click.IntRange(min=1), metavar="N", help="The maximum number of runs per day (UTC)."
)
@click.option(
    "--tokens-per-day", type=click.IntRange(min=1), metavar="N", help="The maximum number of tokens per day (UTC)."
)
@click.option("--revoke", is_flag=True, help="Revoke the key of NAME; its conversations stay.")
@click.option("--list", "lists", is_flag=True, help="List the keys in the database.")
def key(
    config: str | None,
    name: str | None,
    max_runs: int | None,
    runs_per_day: int | None,
    tokens_per_day: int | None,
    revoke: bool,
    lists: bool,
) -> int:
    """Create an API key for NAME and print it."""
    from cursor_gateway.cli.assembly.stores import database_url

    url = database_url(configuration(config).settings)
    limits = {"max_runs": max_runs, "runs_per_day": runs_per_day, "tokens_per_day": tokens_per_day}
    if not url and (lists or revoke or any(limits.values())):
        raise SettingsError(
            "limits, `--list` and `--revoke` need keys in a database; set `store` to a PostgreSQL URL. "
            "To revoke a key of the configuration, remove its line.",
            param="store",
        )
    if lists:
        return _list(url)
    if name is None:
        raise click.UsageError("name the key: `cursor-gateway key NAME`.")
    if revoke:
        return _revoke(url, name)
    _check_name(name)
    made = new_key()
    if url:
        _add(url, name, hash_key(made), limits)
        aside(f"The key of {name} is valid within seconds (it is not shown again):")
    else:
        click.echo(_lines(name, hash_key(made)), err=True)
    click.echo(made)
    return 0


def _check_name(name: str) -> None:
    if is_reserved(name):
        raise SettingsError(
            f"the name `{name}` is reserved for conversations from before API keys were set; choose another."
        )
    if not is_name(name):
        raise SettingsError("the name of a key must be 1 to 64 letters, digits, `_`, `.` or `-`; choose another.")


def _add(url: str, name: str, hashed: str, limits: dict[str, int | None]) -> None:
    from cursor_gateway.store.postgres.keys import KeyLimits

    if not _with(url, lambda table: table.add(name, hashed, KeyLimits(**limits), _now_ms())):
        raise Trouble(f"there is a valid key named {name}; revoke it first with `cursor-gateway key {name} --revoke`.")


def _revoke(url: str, name: str) -> int:
    if not _with(url, lambda table: table.revoke(name, _now_ms())):
        aside(f"There is no valid key named {name}.")
        return 1
    aside(f"Revoked the key of {name}: gateways refuse it within seconds.")
    return 0


def _list(url: str) -> int:
    entries = _with(url, lambda table: table.list())
    if not sys.stdout.isatty():
        for entry in entries:
            click.echo("\t".join(_row(entry)))
    elif not entries:
        aside("The database has no API keys; create one with `cursor-gateway key NAME`.")
    else:
        _show(entries)
    return 0


def _show(entries: "Sequence[KeyEntry]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for heading in ("name", "state", "created", "runs at once", "runs today", "tokens today"):
        table.add_column(heading, justify="left" if heading in ("name", "state", "created") else "right")
    for entry in entries:
        table.add_row(*_row(entry), style="dim" if entry.revoked_ms is not None else "")
    Console().print(table)


def _row(entry: "KeyEntry") -> tuple[str, ...]:
    return (
        entry.name,
        "valid" if entry.revoked_ms is None else "revoked",
        datetime.fromtimestamp(entry.created_ms / 1000, UTC).strftime("%Y-%m-%d"),
        "" if entry.max_runs is None else str(entry.max_runs),
        _of(entry.runs_today, entry.runs_per_day),
        _of(entry.tokens_today, entry.tokens_per_day),
    )


def _of(used: int, limit: int | None) -> str:
    return f"{used:,}" if limit is None else f"{used:,} of {limit:,}"


def _with(url: str, work: "Callable[[KeyTable], Awaitable[_Result]]") -> _Result:
    from cursor_gateway.store.postgres.keys import KeyTable

    async def do() -> _Result:
        table = KeyTable(url)
        try:
            return await work(table)
        finally:
            await table.close()

    return asyncio.run(do())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _lines(name: str, hashed: str) -> str:
    file = usual_file()
    entry = f'"{name}"' if "." in name else name  # TOML takes a bare dot for a table in a table
    return (
        f"In the configuration file{f' ({file})' if file else ''}:\n\n"
        f'  [api_keys]\n  {entry} = "{hashed}"\n\n'
        "or in the environment (replaces the keys in the file; separate several with commas):\n\n"
        f"  CURSOR_GATEWAY_API_KEYS={name}={hashed}\n\n"
        f"The key of {name} (it is not shown again):\n"
    )
