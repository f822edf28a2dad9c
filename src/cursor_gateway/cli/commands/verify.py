"""`cursor-gateway verify`: find out whether the installed agent does what the gateway expects."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from cursor_gateway.cli.configuration import config, configuration, data_dir
from cursor_gateway.cli.output import Trouble, aside
from cursor_gateway.errors import GatewayError
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from rich.table import Table

    from cursor_gateway.cli.commands.verification import Verification, Verified
    from cursor_gateway.client.asynchronous import AsyncClient

SOURCES = ("cli", "acp", "sdk")
_MARKS = {"same": "✓", "different": "✗", "skipped": "–"}
_STYLES = {"same": "green", "different": "red", "skipped": "dim"}

Adapt = Callable[[str, str], str]


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway verify
      cursor-gateway verify --source cli --yes
      cursor-gateway verify --record recordings      raw output, to attach to a report

    \b
    Exit status: 0 no differences; 1 differences; 2 nothing was verified.""",
)
@config
@click.option("--source", "only", type=click.Choice(SOURCES), multiple=True, help="Only this backend; may be repeated.")
@click.option("--yes", is_flag=True, help="Do not ask before prompts are sent.")
@click.option("--record", metavar="DIR", help="Keep the agent's raw output in this folder, without secrets.")
def verify(config: str | None, only: Sequence[str], yes: bool, record: str | None) -> int:
    """Check with short prompts that the installed agent does what the gateway expects.

    The prompts are sent to Cursor, and count towards your plan. The agent works in a temporary folder.
    """
    settings = configuration(config).settings
    found = set_up(settings, os.environ)
    sources = [source for source in only or SOURCES if found[source] == ""]
    for source in only:
        if found[source]:
            raise Trouble(f"`{source}` is not set up: {found[source]}.")
    if not sources:
        raise Trouble("no backend is set up; run `cursor-gateway doctor`.")
    _confirm(sources, yes=yes)
    results = asyncio.run(_verify_all(settings, sources, Path(record) if record else None))
    return 1 if any(one.differences for one in results) else 0


def _confirm(sources: Sequence[str], *, yes: bool) -> None:
    from cursor_gateway.cli.commands.verification import PROMPTS

    count = len(PROMPTS) * len(sources)
    aside(f"Up to {count} short prompts will be sent to Cursor, {len(PROMPTS)} with each of: {', '.join(sources)}.")
    if yes:
        return
    if not sys.stdin.isatty():
        raise Trouble("nothing was sent; add `--yes` to send the prompts without being asked.")
    click.confirm("Send them?", abort=True, err=True)


def set_up(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Why each backend cannot be used here; empty if it can, as far as is known without trying."""
    from cursor_gateway.cli.assembly.sources import unsupported
    from cursor_gateway.sources.cursor.program import candidates
    from cursor_gateway.sources.sdk.bridge import MODULE

    program = "" if candidates(settings.agent_program, environ) else "cursor-agent is not installed"
    sdk = "" if find_spec(MODULE) is not None else "cursor-sdk is not installed"
    sdk = sdk or ("" if environ.get("CURSOR_API_KEY") else "CURSOR_API_KEY is not set")
    own = msgspec.structs.replace(settings, record_dir="")
    return {"cli": program, "acp": program or unsupported("acp", own), "sdk": sdk or unsupported("sdk", own)}


async def _verify_all(settings: Settings, sources: Sequence[str], record: Path | None) -> "list[Verified]":
    from cursor_gateway.cli.commands.verification import PROMPTS, store_verified
    from cursor_gateway.cli.output import terminal

    console, results = terminal(), []
    with console.status("Starting…") as status:
        for source in sources:

            def show(check: str, source: str = source) -> None:
                done = list(PROMPTS).index(check) + 1 if check in PROMPTS else len(PROMPTS)
                status.update(f"{source}: {check} ({done} of {len(PROMPTS)} prompts)")

            try:
                results.append(await verify_source(settings, source, record, show))
            except GatewayError as error:
                aside(f"{source} cannot be started: {error}")
                continue
            store_verified(data_dir(settings), results[-1])
            console.print(table_of(results[-1]))
    if not results:
        raise Trouble("nothing was verified.")
    return results


async def verify_source(
    settings: Settings,
    source: str,
    record: Path | None = None,
    show: Callable[[str], None] = lambda check: None,
    adapt: Adapt = lambda check, prompt: prompt,
) -> "Verified":
    """With a gateway of its own, in a temporary folder. Raises a `GatewayError` if that cannot start."""
    from cursor_gateway.cli.assembly.own_gateway import own_gateway
    from cursor_gateway.cli.commands.verification import RawRecording, Verification, verified_now
    from cursor_gateway.sources.process import tapped
    from cursor_gateway.sources.processes import running

    with _scratch() as scratch:
        work = scratch / "work"
        work.mkdir()
        own = _own_settings(settings, source, scratch)
        recording = RawRecording(scratch / "raw")
        with tapped(recording.tap):
            async with own_gateway(own, str(work)) as gateway:
                version = version_in(gateway.gateway.service.source.state().detail)
                hooked = partial(_with_hooks, own, work, version) if source == "cli" else None
                verification = Verification(gateway.client, source, work, running, recording, adapt, hooked)
                results = []
                for check in verification.checks():
                    show(check)
                    results.append(await verification.run(check))
                result = verified_now(source, version, results)
                await _forget(gateway.client)
        if record is not None:
            _keep(record / source, scratch, verification, result, _secrets(settings))
    return result


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cursor-gateway-verify-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@asynccontextmanager
async def _with_hooks(own: Settings, work: Path, version: str) -> "AsyncIterator[AsyncClient]":
    """A gateway that uses hooks, as if this version had passed the checks for that."""
    from cursor_gateway.cli.assembly.own_gateway import own_gateway
    from cursor_gateway.cli.commands.verification import HELD, CheckResult, store_verified, verified_now

    data = Path(own.data_dir).with_name("data-with-hooks")
    store_verified(data, verified_now("cli", version, [CheckResult("hook", "same", ""), CheckResult(HELD, "same", "")]))
    settings = msgspec.structs.replace(own, data_dir=str(data), approvals="hooks")
    async with own_gateway(settings, str(work)) as gateway:
        yield gateway.client
        await _forget(gateway.client)


def _own_settings(settings: Settings, source: str, scratch: Path) -> Settings:
    return msgspec.structs.replace(
        settings,
        source=source,
        data_dir=str(scratch / "data"),
        store="",
        history=True,
        record_dir="",
        permissions="ask",
        approvals="agent",
        allow=[],
        force=False,
        refuse_workspace_hooks=False,
        account_error_seconds=0,
        spare_agents=2,  # for the next turn, and for the next conversation
    )


def version_in(detail: str) -> str:
    """`cursor-agent 2026.10.01-e373342 (/path)` or `cursor-sdk 1.1.0, …`."""
    return detail.split()[1].rstrip(",") if len(detail.split()) > 1 else detail


async def _forget(client: "AsyncClient") -> None:
    """Deletes the conversations, with the copies that the agent keeps."""
    for entry in [entry async for entry in client.conversations()]:
        await client.delete_conversation(entry.id)


def _secrets(settings: Settings) -> list[str]:
    return [os.environ.get(name, "") for name in ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN")] + list(
        settings.agent_headers.values()
    )


def _keep(folder: Path, scratch: Path, verification: "Verification", result: "Verified", secrets: list[str]) -> None:
    from cursor_gateway.cli.commands.verification import redact

    shutil.copytree(scratch / "raw", folder, dirs_exist_ok=True)
    (folder / "verified.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    answers = {check: msgspec.to_builtins(answer) for check, answer in verification.answers.items()}
    (folder / "answers.json").write_text(json.dumps(answers, indent=2, ensure_ascii=False), "utf-8")
    redact(folder, secrets, {str(scratch): "/SCRATCH", str(Path.home()): "/HOME"})


def table_of(verified: "Verified") -> "Table":
    from rich.table import Table
    from rich.text import Text

    title = f"{verified.source} {verified.version}, {verified.platform}, {verified.date}: {verified.counted}"
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("", "check", "found"):
        table.add_column(column, overflow="fold")
    for result in verified.results:
        style = _STYLES[result.outcome]
        table.add_row(Text(_MARKS[result.outcome], style), result.check, Text(result.found))
    return table
