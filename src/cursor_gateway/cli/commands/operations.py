"""`cursor-gateway migrate`, `history`, `runners`, `drain`, `webhooks` and `key`: what operators do."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from cursor_gateway.cli.configuration import config, configuration, data_dir, usual_file
from cursor_gateway.cli.output import Trouble, aside, write_json
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import LOCAL_OWNER, hash_key, is_name, is_reserved, new_key
from cursor_gateway.render.visible import visible_line
from cursor_gateway.settings import Settings
from cursor_gateway.store.cluster import ClusterStore, Member
from cursor_gateway.webhooks.webhook import Webhook

if TYPE_CHECKING:
    from rich.table import Table

    from cursor_gateway.store.postgres.keys import KeyEntry, KeyTable


# --- the tables of a database -------------------------------------------------------------------------


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
    from cursor_gateway.cli.assembly.stores import database_url

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


# --- a copy of the history ---------------------------------------------------------------------------


@click.group()
def history() -> None:
    """Copy conversations to a PostgreSQL database."""


@history.command(
    epilog="""\b
    Examples:
      cursor-gateway history copy
      cursor-gateway history copy --as alice

    \b
    You can interrupt the copy and start it again: conversations that are already in the
    database are left as they are. The agents' own session data stays in the data directory;
    copied conversations continue from their messages.
    Exit status: 0 success; 1 a conversation has an active run and was not copied.""",
)
@config
@click.option("--from", "source", metavar="DIR", help="The data directory to read. Default: the setting `data_dir`.")
@click.option("--as", "owner", metavar="NAME", help="The key that will own conversations created without one.")
def copy(config: str | None, source: str | None, owner: str | None) -> int:
    """Copy this machine's history to the PostgreSQL database that the setting `store` names."""
    from cursor_gateway.cli.assembly.stores import database_url

    settings = configuration(config).settings
    url = database_url(settings)
    if not url:
        raise SettingsError(
            "the setting `store` names no database to copy to; set it to a PostgreSQL URL.", param="store"
        )
    if owner is not None and not is_name(owner):
        raise SettingsError("the name of a key must be 1 to 64 letters, digits, `_`, `.` or `-`; choose another.")
    directory = Path(source).expanduser() if source else data_dir(settings)
    from cursor_gateway.store.sqlite.opening import FILE

    if not (directory / FILE).exists():
        raise Trouble(f"there is no history in {directory}; name its folder with `--from`.")
    counts = asyncio.run(_copy(directory, url, owner or LOCAL_OWNER))
    aside(_summary(counts))
    return 1 if counts["running"] else 0


async def _copy(directory: Path, url: str, owner: str) -> "Counter[str]":
    from rich.progress import Progress

    from cursor_gateway.store.postgres.restoring import open_restorer
    from cursor_gateway.store.sql import CONVERSATION_COLUMNS
    from cursor_gateway.store.sqlite.copying import open_archive

    owned = CONVERSATION_COLUMNS.index("owner")
    counts: Counter[str] = Counter()
    with open_archive(directory, time.time_ns() // 1_000_000) as archive:
        async with open_restorer(url, archive.last_run) as restorer:
            with Progress(transient=True, disable=not sys.stderr.isatty()) as progress:
                task = progress.add_task("Copying conversations", total=archive.count)
                for conversation in archive.conversations():
                    name = conversation.row[owned]
                    counts[await restorer.restore(conversation, owner if name == LOCAL_OWNER else name)] += 1
                    progress.advance(task)
    return counts


def _summary(counts: "Counter[str]") -> str:
    said = [f"Copied {_counted(counts['copied'])}."]
    if counts["known"]:
        said.append(f"The database already had {counts['known']} of them.")
    if counts["running"]:
        said.append(
            f"Skipped {_counted(counts['running'])} with an active run; run the command again when it has ended."
        )
    return " ".join(said)


def _counted(count: int) -> str:
    return f"{count} conversation{'' if count == 1 else 's'}"


# --- the processes of a cluster ----------------------------------------------------------------------


_LOOK_SECONDS = 1.0


@click.group(
    invoke_without_command=True,
    epilog="""\b
    Examples:
      cursor-gateway runners
      cursor-gateway runners --watch
      cursor-gateway runners drain worker1-4242-77120-9f3a1c02

    \b
    The age of a heartbeat is measured while this command runs, so it needs --watch. A process whose heartbeat
    is older than `lease_seconds` is considered dead: its runs end with the error `runner_lost`.""",
)
@config
@click.option("--watch", is_flag=True, help="Update the table every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def runners(context: click.Context, config: str | None, watch: bool, as_json: bool) -> int:
    """List the processes in a cluster: what they do, where, and how busy they are."""
    if context.invoked_subcommand is not None:
        return 0
    settings = configuration(config).settings
    with suppress(KeyboardInterrupt):
        asyncio.run(_watch(settings) if watch else _once(settings, as_json=as_json))
    return 0


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway runners
      cursor-gateway runners drain worker1-4242-77120-9f3a1c02

    \b
    Its runs continue; `cursor-gateway runners --watch` shows when they have ended. Then stop it, or let it work
    again with `cursor-gateway runners undrain`.
    Exit status: 0 success; 2 there is no such process.""",
)
@config
@click.argument("id")
def drain(config: str | None, id: str) -> int:
    """Tell a process in a cluster to accept no new work. From then on its /readyz returns 503."""
    return _set_draining(config, id, is_draining=True)


runners.add_command(drain)  # which was there first


@runners.command(
    epilog="""\b
    Example:
      cursor-gateway runners undrain worker1-4242-77120-9f3a1c02

    \b
    Exit status: 0 success; 2 there is no such process.""",
)
@config
@click.argument("id")
def undrain(config: str | None, id: str) -> int:
    """Let a process that was drained accept new work again."""
    return _set_draining(config, id, is_draining=False)


def _set_draining(config: str | None, id: str, *, is_draining: bool) -> int:
    async def set_draining() -> bool:
        async with open_cluster(configuration(config).settings) as cluster:
            return await cluster.set_member(id, is_draining=is_draining)

    if not asyncio.run(set_draining()):
        raise Trouble(f"no process {id[:100]!r} is connected to the database; see `cursor-gateway runners`.")
    return 0


async def _once(settings: Settings, *, as_json: bool) -> None:
    async with open_cluster(settings) as cluster:
        members = (await cluster.figures()).members
    if as_json:
        write_json(msgspec.json.encode(members))
        return
    if not sys.stdout.isatty():
        _print_rows(members, None)
        return
    from rich.console import Console

    Console().print(_table(members, None) if members else "No process is connected to the database.")


async def _watch(settings: Settings) -> None:
    from rich.live import Live

    seen: dict[str, tuple[int, float]] = {}
    async with open_cluster(settings) as cluster:
        with Live(auto_refresh=False) if sys.stdout.isatty() else nullcontext() as live:
            while True:
                members, now = (await cluster.figures()).members, time.monotonic()
                seen = {
                    one.id: seen[one.id] if seen.get(one.id, (-1, 0.0))[0] == one.beat else (one.beat, now)
                    for one in members
                }
                ages = {id: now - since for id, (_, since) in seen.items()}
                if live is None:
                    _print_rows(members, ages)
                else:
                    live.update(_table(members, ages), refresh=True)
                await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def open_cluster(settings: Settings) -> AsyncIterator[ClusterStore]:
    """To look at it, or tell it something; not as a member. Raises `SettingsError`."""
    from cursor_gateway.cli.assembly.clustering import cluster_of
    from cursor_gateway.cli.assembly.stores import database_url, store_of
    from cursor_gateway.cli.configuration import data_dir

    if not database_url(settings):
        raise SettingsError("there is no cluster: the setting `store` names no database.", param="store")
    store = store_of(settings, data_dir(settings))
    try:
        yield cluster_of(store)
    finally:
        await store.close()


def _table(members: Sequence[Member], ages: Mapping[str, float] | None) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    columns = ["id", "role", "host", "volumes", "labels", "runs", "state", "version"]
    for name in [*columns, "beat"] if ages is not None else columns:
        table.add_column(name, overflow="fold")
    for one in members:
        table.add_row(*_row(one, ages))
    return table


def _print_rows(members: Sequence[Member], ages: Mapping[str, float] | None) -> None:
    """For a program: a line for each process, its columns separated by tabs."""
    for one in members:
        click.echo("\t".join(_row(one, ages)))
    sys.stdout.flush()


def _row(one: Member, ages: Mapping[str, float] | None) -> list[str]:
    row = [
        visible_line(one.id),
        one.role,
        visible_line(one.host),
        visible_line(" ".join(one.volumes)) or "–",
        visible_line(" ".join(one.labels)) or "–",
        f"{one.busy}/{one.capacity}" if one.is_runner else "–",
        "draining" if one.is_draining else "ready",
        visible_line(one.version),
    ]
    return row if ages is None else [*row, f"{ages[one.id]:.0f} s ago"]


# --- webhooks ----------------------------------------------------------------------------------------


@click.group()
def webhooks() -> None:
    """Tell other services when runs wait, finish or fail (setting `webhooks`)."""


@webhooks.command(
    epilog="""\b
    Examples:
      cursor-gateway webhooks test
      cursor-gateway webhooks test slack

    \b
    One attempt each, from this machine, without the history. Exit status: 1 if a webhook did not
    accept its message; 2 if there is none of this name.""",
)
@config
@click.argument("names", nargs=-1, metavar="[NAME]...")
def test(config: str | None, names: tuple[str, ...]) -> int:
    """Send a test message to all webhooks, or to those named."""
    known = configuration(config).settings.webhooks
    if not known:
        raise SettingsError("there are no webhooks; add `[webhooks.NAME]` with a `url` to the settings.")
    if unknown := [name for name in names if name not in known]:
        raise SettingsError(f"there is no webhook {unknown[0]!r}; the settings have {', '.join(known)}.")
    results = [asyncio.run(_send(name, known[name])) for name in names or known]
    return 0 if all(results) else 1


async def _send(name: str, webhook: Webhook) -> bool:
    from cursor_gateway.webhooks.delivery import PostFailed, post
    from cursor_gateway.webhooks.messages import headers_of, sample_message

    now = time.time()
    body = sample_message(name, webhook, int(now * 1000))
    headers = headers_of(webhook, f"msg_test_{token_hex(8)}", body, int(now))
    try:
        posted = await post(webhook.url, headers, body, allow_private=webhook.allow_private)
    except PostFailed as error:
        click.echo(f"{name}: {error}")
        return False
    click.echo(f"{name}: status {posted.status}")
    return 200 <= posted.status < 300


# --- API keys -----------------------------------------------------------------------------------------


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
        return _list_keys(url)
    if name is None:
        raise click.UsageError("name the key: `cursor-gateway key NAME`.")
    if revoke:
        return _revoke_key(url, name)
    _check_name(name)
    made = new_key()
    if url:
        _add_key(url, name, hash_key(made), limits)
        aside(f"The key of {name} is valid within seconds (it is not shown again):")
    else:
        click.echo(_key_lines(name, hash_key(made)), err=True)
    click.echo(made)
    return 0


def _check_name(name: str) -> None:
    if is_reserved(name):
        raise SettingsError(
            f"the name `{name}` is reserved for conversations from before API keys were set; choose another."
        )
    if not is_name(name):
        raise SettingsError("the name of a key must be 1 to 64 letters, digits, `_`, `.` or `-`; choose another.")


def _add_key(url: str, name: str, hashed: str, limits: dict[str, int | None]) -> None:
    from cursor_gateway.store.postgres.keys import KeyLimits

    if not _with_keys(url, lambda table: table.add(name, hashed, KeyLimits(**limits), _now_ms())):
        raise Trouble(f"there is a valid key named {name}; revoke it first with `cursor-gateway key {name} --revoke`.")


def _revoke_key(url: str, name: str) -> int:
    if not _with_keys(url, lambda table: table.revoke(name, _now_ms())):
        aside(f"There is no valid key named {name}.")
        return 1
    aside(f"Revoked the key of {name}: gateways refuse it within seconds.")
    return 0


def _list_keys(url: str) -> int:
    entries = _with_keys(url, lambda table: table.list())
    if not sys.stdout.isatty():
        for entry in entries:
            click.echo("\t".join(_key_row(entry)))
    elif not entries:
        aside("The database has no API keys; create one with `cursor-gateway key NAME`.")
    else:
        _show_keys(entries)
    return 0


def _show_keys(entries: "Sequence[KeyEntry]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for heading in ("name", "state", "created", "runs at once", "runs today", "tokens today"):
        table.add_column(heading, justify="left" if heading in ("name", "state", "created") else "right")
    for entry in entries:
        table.add_row(*_key_row(entry), style="dim" if entry.revoked_ms is not None else "")
    Console().print(table)


def _key_row(entry: "KeyEntry") -> tuple[str, ...]:
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


def _with_keys(url: str, work: "Callable[[KeyTable], Awaitable[_Result]]") -> _Result:
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


def _key_lines(name: str, hashed: str) -> str:
    file = usual_file()
    entry = f'"{name}"' if "." in name else name  # TOML takes a bare dot for a table in a table
    return (
        f"In the configuration file{f' ({file})' if file else ''}:\n\n"
        f'  [api_keys]\n  {entry} = "{hashed}"\n\n'
        "or in the environment (replaces the keys in the file; separate several with commas):\n\n"
        f"  CURSOR_GATEWAY_API_KEYS={name}={hashed}\n\n"
        f"The key of {name} (it is not shown again):\n"
    )
