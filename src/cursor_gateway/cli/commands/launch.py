"""`cursor-gateway launch`: start a client in this terminal, connected to a gateway."""

import asyncio
import os
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.cli.assembly.remote import Remote, current_folder, url_option
from cursor_gateway.cli.clients import base
from cursor_gateway.cli.clients.table import LAUNCHED
from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.output import Trouble, write_text
from cursor_gateway.settings import Settings

_MODELS_SECONDS = 20.0  # the agent lists them; after this, the default is used


class NotInstalled(Trouble):
    exit_code = 127  # as in a shell


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=f"""\b
    Clients:
{base.listed(LAUNCHED)}

    \b
    Examples:
      cursor-gateway launch claude
      cursor-gateway launch opencode -- run "What is this project?"
      cursor-gateway launch --dry-run codex

    \b
    Options of `launch` come before NAME. The exit status is the client's; 2 if
    it could not be started, 127 if it is not installed.""",
)
@click.argument("name", metavar="NAME", type=click.Choice(list(LAUNCHED)))
@click.argument("arguments", metavar="[-- ARGS…]", nargs=-1, type=click.UNPROCESSED)
@config
@url_option
@click.option("--model", metavar="NAME", help="The model to start with; see `cursor-gateway models`.")
@click.option("--dry-run", is_flag=True, help="Only print what would be run: the command, environment and files.")
def launch(
    name: str, arguments: tuple[str, ...], config: str | None, url: str | None, model: str | None, dry_run: bool
) -> int:
    """Start an installed client that uses Cursor's agent, in the current folder.

    No configuration file is changed: everything is set for this one process. The client uses your running gateway if
    that is allowed to work in this folder. Otherwise, a gateway is started, and stops when the client does.
    """
    client = LAUNCHED[name]
    assert client.launch is not None
    options = LaunchOptions(
        client,
        client.launch,
        program=_program(client, client.launch),
        arguments=arguments[1:] if arguments[:1] == ("--",) else arguments,
        folder=current_folder(),
        url=url,
        model=model,
    )
    settings = configuration(config).settings
    if dry_run:
        asyncio.run(_show(options, settings))
        return 0
    return _run(options, settings)


class LaunchOptions(Struct, frozen=True):
    client: base.ClientProgram
    how: base.LaunchPlan
    program: str
    arguments: Sequence[str]
    folder: str
    url: str | None
    model: str | None


def _program(client: base.ClientProgram, how: base.LaunchPlan) -> str:
    for name in client.programs:
        if (found := shutil.which(name)) is not None:
            return found
    raise NotInstalled(f"{client.title} is not installed (no `{client.programs[0]}` on PATH); run `{how.install}`.")


# --- running it -----------------------------------------------------------------------------------------


def _run(options: LaunchOptions, settings: Settings) -> int:
    from cursor_gateway.cli.assembly.serving import run_loop

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a broken connection is no reason to end
    for number in (signal.SIGTERM, signal.SIGHUP):  # until the client runs, so that our files are removed
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        return run_loop(_launch(options, settings))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


async def _launch(options: LaunchOptions, settings: Settings) -> int:
    from cursor_gateway.cli.assembly.own_gateway import gateway_in

    async with gateway_in(settings, options.url, options.folder, options.client.title) as remote:
        return await _start(options, await _endpoint(remote, options, settings.model))


async def _start(options: LaunchOptions, endpoint: base.GatewayAddress) -> int:
    from cursor_gateway.cli.terminal.programs import run_in_foreground

    # For this user only. What the client leaves running may still write to it.
    with TemporaryDirectory(prefix="cursor-gateway-", ignore_cleanup_errors=True) as folder:
        start = options.how.start(endpoint, folder)
        for name, text in start.files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        command = [options.program, *start.arguments, *options.arguments]
        try:
            return await run_in_foreground(command, _environment(start, os.environ))
        except OSError as error:
            raise Trouble(f"{options.program} cannot be started: {error.strerror}; reinstall it.") from None


def _environment(start: base.StartPlan, given: Mapping[str, str]) -> dict[str, str]:
    changed = {**given, **_without_proxy(given), **start.environment}
    return {name: value for name, value in changed.items() if value is not None}


def _without_proxy(given: Mapping[str, str]) -> dict[str, str]:
    """A gateway on this machine must not be reached through a proxy."""
    exempt = ",".join(filter(None, (given.get("NO_PROXY") or given.get("no_proxy"), "127.0.0.1,localhost,::1")))
    return {"NO_PROXY": exempt, "no_proxy": exempt}


async def _endpoint(remote: Remote, options: LaunchOptions, model: str) -> base.GatewayAddress:
    """With the models and the default one, which is `model` if the gateway does not list them."""
    from cursor_gateway.client.failures import CallFailed
    from cursor_gateway.errors import KeyRefused

    offered, default = [base.OfferedModel(model, model)], model
    try:
        async with asyncio.timeout(_MODELS_SECONDS):
            entries = await remote.client.models()
    except CallFailed as error:
        if error.code == KeyRefused.code:
            raise
        entries = []
    except TimeoutError:
        entries = []
    if entries:
        offered = [base.OfferedModel(entry.id, entry.name or entry.id) for entry in entries]
        default = next((entry.id for entry in entries if entry.default), entries[0].id)
    if options.model is not None and options.model not in [model.id for model in offered]:
        offered.append(base.OfferedModel(options.model, options.model))
    return base.GatewayAddress(
        url=remote.url,
        key=remote.key or base.NO_KEY,
        models=offered,
        model=options.model or default,
        workspace=options.folder if remote.works_in(options.folder) else "",
    )


# --- only showing it ------------------------------------------------------------------------------------


async def _show(options: LaunchOptions, settings: Settings) -> None:
    """Without the key, and of a gateway that does not run yet without its port."""
    from cursor_gateway.cli.assembly.own_gateway import running_gateway

    async with running_gateway(settings, options.url, options.folder) as remote:
        if remote is not None:
            remote.announce(options.folder if remote.works_in(options.folder) else "")
        endpoint = None if remote is None else await _endpoint(remote, options, settings.model)
    if endpoint is None:
        gateway = f"a new one on a free port, in {options.folder}; it stops when {options.client.title} exits"
        endpoint = base.GatewayAddress(
            url="http://127.0.0.1:PORT",
            model=options.model or settings.model,
            models=[base.OfferedModel(options.model or settings.model, "…")],
            workspace=options.folder,
        )
    else:
        gateway = f"{endpoint.url}, already running"
    folder = "/tmp/cursor-gateway-…"
    shown = endpoint if endpoint.key == base.NO_KEY else replace(endpoint, key="KEY")
    start = options.how.start(shown, folder)
    lines = [
        f"Gateway: {gateway}",
        "Command:",
        f"  {shlex.join([options.program, *start.arguments, *options.arguments])}",
    ]
    lines.append("Environment:")
    for name, value in {**_without_proxy(os.environ), **start.environment}.items():
        lines.append(f"  unset {name}" if value is None else f"  {name}={shlex.quote(value)}")
    for name, text in start.files.items():
        lines += [f"File {folder}/{name}, removed afterwards:", *(f"  {line}" for line in text.splitlines())]
    write_text("\n".join(lines) + "\n")
