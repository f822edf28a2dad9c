"""A file beside the launcher and the environment in; what a test decides that no prompt can, out.

The file counts where the caller hands down only a part of the environment; the environment goes first.

    login=none              nobody is logged in (a CURSOR_API_KEY still helps, unless empty or `bad…`)
    trust=all               every workspace is trusted already
    log=FILE                one line of JSON for each invocation is added to it
    version, email, tier    what `--version`, `status` and `about` say
    models                  see `Knobs.models`
    models_fail             1, or what `models` then says on stderr
    slow_start_seconds      before anything else, for every command
    force_forbidden         --force fails
    sandbox_missing         --sandbox enabled fails
    create_chat_hangs       after printing the id
    no_allowed_tools        --allowed-tools is an unknown option
    ignores_deny            a build that heeds neither deny rules nor --allowed-tools nor --exclude-tools, and asks for
                            no permission: the agent's own tools are carried out (MCP still needs Mcp(server:tool))
    mcp_seconds             how long the MCP client waits for a reply; 60, as the TypeScript SDK does
    mcp_progress            0: it sends no progress token, so that no server can tell of progress
    mcp_reset_on_progress   0: progress does not make it wait longer
    mcp_sequential          parallel calls are sent one after the other, although all are started first
    mcp_listens             0: it does not open the stream (GET) on which a server speaks unasked

Of `cursor-agent acp`:

    acp_logs_sessions       `session/new` is logged, too
    acp_one_variant         an older build, which offers one variant of each model
    acp_garbage             lines that are no messages stand before every message
    acp_ignores_files       no MCP server is known but those of `mcpServers`
    acp_ignores_servers     `mcpServers` means nothing; .cursor/mcp.json counts
    acp_missing             an old build, which has no such command
    acp_no_config_option    `session/set_config_option` is unknown: there is only `session/set_model`
    acp_recording           a recording whose agent's side is played; see `acp_player`
    acp_session_seconds     how long `session/new` takes
    acp_stop                the reason to stop, for every turn that goes well; end_turn
    acp_unannounced         a question comes without a call of its own before it
    acp_usage               the answer to a prompt counts what the session has spent
    acp_wedged              a method that is never answered; 1 for all
    acp_wedged_file         as long as this file exists, no request is answered
"""

import json
import os
from _collections_abc import Mapping  # without `collections`, which takes longer

FILE = "standin.json"
PREFIX = "STANDIN_"


def plain(names: Mapping[str, object]) -> dict[str, object]:
    """`STANDIN_LOGIN` and `login` are the same knob."""
    return {name.removeprefix(PREFIX).lower(): value for name, value in names.items()}


class Knobs:
    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    @classmethod
    def read(cls, directory: str, environ: Mapping[str, str]) -> "Knobs":
        try:
            with open(os.path.join(directory, FILE), encoding="utf-8") as file:
                written = plain(json.load(file))
        except FileNotFoundError:
            written = {}
        given = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
        return cls({**written, **plain(given)})

    def text(self, name: str, default: str = "") -> str:
        value = self._values.get(name, default)
        return value if isinstance(value, str) else json.dumps(value)

    def number(self, name: str, default: float = 0) -> float:
        return float(self.text(name) or default)

    def flag(self, name: str, default: str = "") -> bool:
        return self.text(name, default) not in ("", "0", "false", "null")

    def models(self) -> list[tuple[str, str]]:
        """Id and label; given as a list, or comma-separated, of `id` or `id - Label`."""
        given = self._values.get("models", DEFAULT_MODELS)
        lines = given.split(",") if isinstance(given, str) else given
        assert isinstance(lines, list | tuple), "models is a list"
        pairs = [str(line).strip().partition(" - ") for line in lines]
        return [(id, label or id) for id, _, label in pairs]


DEFAULT_MODELS = (
    "auto - Auto",
    "gpt-5.3-codex-low - Codex 5.3 Low",
    "gpt-5-mini - GPT-5 Mini",
    "claude-sonnet-5-thinking-high - Claude Sonnet 5 1M  Thinking",  # labels with double spaces are seen
    "composer-2.5-fast - Composer 2.5 Fast",
    "grok-4.7-256k - Grok 4.7 256K",
)
