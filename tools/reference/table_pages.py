"""The error classes, the settings, the table of tools and the commands in; their pages out."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import click
import msgspec

from cursor_gateway.errors import GatewayError
from cursor_gateway.settings import FILE_VARIABLE, PREFIX, Setting, every_setting
from cursor_gateway.sources.cursor import tools
from cursor_gateway.stages.tool_documents import started
from tools.reference.markdown import code, page, table

_WIDTH = 100  # of the commands' help, whatever terminal this runs in


def errors_page() -> str:
    rows = [
        (f"`{error.code}`", str(error.status), "yes" if error.retryable else "no", error.__doc__ or "")
        for error in error_classes()
    ]
    tool_rows = sorted(
        (f"`{code}`", ", ".join(f"`{key}`" for key, its in tools.CODES.items() if its == code))
        for code in set(tools.CODES.values()) - {"REJECTED"}
    )
    return page(
        "Errors",
        "Every error has a stable code. A request that fails before the answer starts has the HTTP status. In a\n"
        "running answer, the error becomes an `error` document whose `errorCode` is the code in capitals, and\n"
        "the response's `status` is `error`. [Troubleshooting](../troubleshooting.md) has the cause of each, and\n"
        "what to do.",
        table(["code", "HTTP status", "retry", "meaning"], rows),
        "## Tools",
        "A failed tool does not fail the run. Its document says so, followed by an `error` document whose\n"
        "`source` is the tool's name. The `errorCode` depends on the outcome that the agent reports:",
        table(["`errorCode`", "the agent's outcome"], [*tool_rows, ("`TOOL_ERROR`", "any other")]),
        "A missing file is `FILE_NOT_FOUND` even if the agent reports it only in text. A rejected call is not\n"
        'an error: its document has `state: "rejected"`, and no `error` document follows.',
    )


def error_classes() -> list[type[GatewayError]]:
    """Those that are raised, by status and code."""
    return sorted(_raised(GatewayError), key=lambda error: (error.status, error.code))


def _raised(error: type[GatewayError]) -> Iterator[type[GatewayError]]:
    if "code" in vars(error):
        yield error
    for child in error.__subclasses__():
        yield from _raised(child)


def settings_page() -> str:
    usual = [setting for setting in every_setting() if not setting.is_advanced]
    advanced = [setting for setting in every_setting() if setting.is_advanced]
    groups = [
        part
        for group, members in groupby(usual, key=lambda setting: setting.group)
        for part in (f"## {group}", _settings_table(members))
    ]
    return page(
        "Settings",
        "Flags override environment variables, which override the file, which overrides the defaults. Unknown\n"
        "names and invalid values are errors that say what to do. `cursor-gateway settings` shows each setting\n"
        "with its value and origin.",
        f"The file is TOML: the one given by `--config` or `{FILE_VARIABLE}`, or else\n"
        "`$XDG_CONFIG_HOME/cursor-gateway/config.toml` or `~/.config/cursor-gateway/config.toml`, if it exists.\n"
        "Put settings before all tables:",
        code(_FILE, "toml"),
        f"In the environment, each name has the prefix `{PREFIX}`. Lists are separated by commas; tables are\n"
        "`name=value` pairs separated by commas. Values that contain commas belong in the file. True is also `1`,\n"
        "`yes` or `on`, false also `0`, `no` or `off`. As a flag, where a command has it, `max_runs` is `--max-runs`.",
        *groups,
        "## Advanced",
        "The defaults of these are right for nearly everybody.",
        _settings_table(advanced),
    )


def _settings_table(settings: Iterable[Setting]) -> str:
    return table(["setting", "type", "default", "environment", "meaning"], map(_row, settings))


_FILE = """\
port = 9000
workspace_roots = ["/srv/projects"]

[api_keys] # each line is printed by `cursor-gateway key NAME`
laptop = "sha256:…"
"""


def _row(setting: Setting) -> tuple[str, ...]:
    default = msgspec.json.encode(setting.default).decode()
    return f"`{setting.name}`", setting.takes, f"`{default}`", f"`{setting.variable}`", setting.meaning


def tools_page() -> str:
    editors: dict[str, list[str]] = {}
    for name, tool in tools._EDITOR_NAMES.items():
        editors.setdefault(tool, []).append(f"`{name}`")
    own = []
    for tool in sorted(tools._READERS):
        action = tools.read_call(tool, {})
        own.append((f"`{tool}`", f"`{started(action)[0]}`", f"`{action.tool}`", ", ".join(editors.get(tool, []))))
    others = [
        (f"`{tool}`", f"`{entry.name}`", ", ".join(f"`{old}` → `{new}`" for old, new in entry.renamed.items()))
        for tool, entry in sorted(tools._TABLE.items())
    ]
    return page(
        "Tools",
        "How the agent's tools appear in documents. The agent's name is the one in its protocol without the\n"
        "suffix: `read` for `readToolCall`.",
        "## Tools with their own document type",
        table(["agent's tool", "document", "name in errors and calls", "editor's names"], own),
        "## Tools that become a `tool_call`",
        "Arguments keep their names in snake_case (`globPattern` becomes `glob_pattern`), except those that the\n"
        "table renames. The ids and policies of the call itself are omitted.",
        table(["agent's tool", "`toolName`", "renamed arguments"], others),
        "`mcp` becomes a `tool_call` with the name and arguments of the MCP tool. Every other tool becomes a\n"
        "`tool_call` too, with its own name in snake_case and its arguments and result unchanged.",
    )


def cli_page() -> str:
    from cursor_gateway.cli.main import cli  # late: the other pages do not need the commands

    parts = [
        part
        for command, context in commands_below(cli, "cursor-gateway")
        for part in (f"## {context.command_path}", code(command.get_help(context), "text"))
    ]
    return page("Command line", *parts)


def commands_below(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[click.Command, click.Context]]:
    """A command and those below it, each with a context for its help."""
    settings = {**command.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield command, context
    if isinstance(command, click.Group):
        for child, its in sorted(command.commands.items()):
            if not its.hidden:
                whole = its.make_context(child, [], context, resilient_parsing=True).command  # it is imported when used
                yield from commands_below(whole, child, context)
