"""`cursor-gateway history copy`: copy this machine's history to a PostgreSQL database."""

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

import click

from cursor_gateway.cli.configuration import config, configuration, data_dir
from cursor_gateway.cli.output import Trouble, aside
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import LOCAL_OWNER, is_name


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
    from cursor_gateway.cli.stores import database_url

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
    said = [f"Copied {_conversations(counts['copied'])}."]
    if counts["known"]:
        said.append(f"The database already had {counts['known']} of them.")
    if counts["running"]:
        said.append(
            f"Skipped {_conversations(counts['running'])} with an active run; run the command again when it has ended."
        )
    return " ".join(said)


def _conversations(count: int) -> str:
    return f"{count} conversation{'' if count == 1 else 's'}"
