"""Build the arguments, the standard input and the environment of cursor-agent."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from cursor_gateway.errors import AgentMisconfigured
from cursor_gateway.sources.base import Turn

# Below the kernel's limit for a single argument (MAX_ARG_STRLEN, 128 KiB with its NUL).
_LONGEST_ARGUMENT = 120 * 1024

# A prompt that is just one of these words would run that command: the prompt `logout` must not log the user out.
_COMMANDS = """
about acp agent bedrock create-chat generate-rule help install install-shell-integration login logout ls mcp models
persist plugin resume sandbox status team uninstall-shell-integration update whoami worker
"""

# DBUS_SESSION_BUS_ADDRESS: the keychain with the login is reached over D-Bus.
_ENVIRONMENT = """
PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TERM TMPDIR TMP TEMP DBUS_SESSION_BUS_ADDRESS
SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS NODE_USE_ENV_PROXY NODE_USE_SYSTEM_CA
HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
CURSOR_API_KEY CURSOR_AUTH_TOKEN CURSOR_API_ENDPOINT CURSOR_DATA_DIR AGENT_CLI_CREDENTIAL_STORE
"""
_ENVIRONMENT_PREFIXES = ("LC_", "XDG_")

# Builds from this month on read the prompt from standard input (2026.07.16 does not). Preferred where possible:
# command-line arguments are visible to every user of the machine.
_READS_STDIN = "2026.08"
_MONTH = re.compile(r"\d{4}\.\d{2}")

# The command from Cursor's documentation, for Linux and macOS.
INSTALL_COMMAND = "curl https://cursor.com/install -fsS | bash"
INSTALL_ADVICE = f"install it with `{INSTALL_COMMAND}` and run `cursor-agent login`, or set `agent_program`"

PLUGIN_FLAG = "--plugin-dir"  # loads the plugin in a folder
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


class Program(Struct, frozen=True):
    """The installed agent: where it is, its version and its flags."""

    path: str
    version: str
    flags: frozenset[str]  # from its --help; empty when unknown
    launcher: Sequence[str] = ()  # starts it as another user

    @property
    def command(self) -> list[str]:
        return [*self.launcher, self.path]

    def can(self, flag: str) -> bool:
        return not self.flags or flag in self.flags

    def is_since(self, month: str) -> bool:
        """Whether it was built in this month or later; False for a version that cannot be parsed."""
        built = _MONTH.match(self.version)
        return built is not None and built[0] >= month


Sandbox: TypeAlias = Literal["agent", "enabled", "disabled"]  # agent: as its own configuration says


class CommandOptions(Struct, frozen=True, kw_only=True):
    """The operator's settings."""

    trust: bool = True
    force: bool = False
    headers: Mapping[str, str] = {}
    sandbox: Sandbox = "agent"
    http1: bool = False


class AgentCommand(Struct, frozen=True):
    arguments: list[str]
    stdin: bytes | None  # None: /dev/null. With an open pipe some builds never start, others never exit.


def flags_of(help_text: str) -> frozenset[str]:
    return frozenset(_FLAG.findall(help_text))


def command_for(
    turn: Turn,
    program: Program,
    options: CommandOptions,
    extra_folders: Iterable[str] = (),
    allowed_tools: Collection[str] = (),
    plugin: str = "",
) -> AgentCommand:
    """With `allowed_tools` the agent has no other tools and never asks for permission: anything else is denied.
    `plugin` is the folder of one."""
    arguments = [*program.command, "-p", "--output-format", "stream-json"]
    if program.can("--stream-partial-output"):
        arguments.append("--stream-partial-output")
    # Always set: without it the agent uses the model that its user chose last.
    arguments += ["--model", turn.model]
    match turn.mode:
        case "plan" | "ask":
            if not program.can("--mode"):
                raise AgentMisconfigured(
                    f"cursor-agent {program.version} has no `{turn.mode}` mode; update it with `cursor-agent update`."
                )
            arguments += ["--mode", turn.mode]
        case "agent" | "debug":  # `debug` is a preamble in the prompt
            pass
    if program.can("--workspace"):
        arguments += ["--workspace", turn.workspace]
    if program.can("--add-dir"):
        for folder in extra_folders:
            arguments += ["--add-dir", folder]
    if plugin:
        arguments += [PLUGIN_FLAG, plugin]
    arguments += operator_flags(program, options, allowed_tools)
    if turn.session_id is not None:
        arguments += ["--resume", turn.session_id]
    prompt = prompt_bytes(turn)
    if program.is_since(_READS_STDIN) or _is_no_argument(turn.prompt, prompt):
        return AgentCommand(arguments, prompt)
    if turn.prompt.startswith("-"):
        arguments.append("--")
    return AgentCommand([*arguments, turn.prompt], None)


def prompt_bytes(turn: Turn) -> bytes:
    """As an agent reads it from its standard input."""
    return turn.prompt.encode("utf-8", "replace")


def operator_flags(program: Program, options: CommandOptions, allowed_tools: Collection[str]) -> list[str]:
    """What the operator allows, and the headers to send. Raises `AgentMisconfigured`."""
    flags = []
    if options.sandbox != "agent":
        if not program.can("--sandbox"):
            raise AgentMisconfigured(
                f"cursor-agent {program.version} has no sandbox, but `sandbox` is set; update it with `cursor-agent "
                "update`, or remove the setting."
            )
        flags += ["--sandbox", options.sandbox]
    if (options.trust or allowed_tools) and program.can("--trust"):  # with `allowed_tools`, the gateway's own folder
        flags.append("--trust")
    if allowed_tools:
        flags += ["--approve-mcps", f"--allowed-tools={','.join(allowed_tools)}"]
    elif options.force:
        flags.append("--force")
    for name, value in options.headers.items():
        flags += ["--header", f"{name}: {value}"]
    return flags


def _is_no_argument(text: str, encoded: bytes) -> bool:
    return len(encoded) > _LONGEST_ARGUMENT or b"\0" in encoded or text in _COMMANDS.split()


PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def proxy_in(environ: Mapping[str, str]) -> str:
    """The name of the variable that sets a proxy for the agent; empty: there is none."""
    return next((name for name in PROXIES if environ.get(name)), "")


def check_version(program: Program, wanted: str) -> None:
    """Raises `AgentMisconfigured` for any other than the operator's choice."""
    if not program.version.startswith(wanted):
        raise AgentMisconfigured(
            f"cursor-agent {program.version} is installed, but `agent_version` is {wanted}; install that version, or "
            "change the setting."
        )


def environment_for(environ: Mapping[str, str], extra: Collection[str], config_dir: str | None) -> dict[str, str]:
    """An allow list, so that the gateway's own secrets never reach the agent."""
    names = {*_ENVIRONMENT.split(), *(name for name in extra if not name.endswith("*"))}
    prefixes = (*_ENVIRONMENT_PREFIXES, *(name.removesuffix("*") for name in extra if name.endswith("*")))
    kept = {name: value for name, value in environ.items() if name in names or name.startswith(prefixes)}
    if not kept.get("CURSOR_API_KEY"):
        kept.pop("CURSOR_API_KEY", None)  # the agent reports an empty one as an invalid key
    kept["NO_OPEN_BROWSER"] = "1"
    if config_dir is not None:
        kept["CURSOR_CONFIG_DIR"] = config_dir
    return kept
