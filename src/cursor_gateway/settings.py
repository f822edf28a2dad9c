"""The operator's settings as one typed object: each with its default and its meaning.

They are merged from the defaults, the file, the environment and flags, and each remembers where it came from.
An unknown name is an error: a misspelt setting is worse than none.
"""

import difflib
import ipaddress
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.inspect import BoolType, DictType, FloatType, IntType, ListType, LiteralType, StrType, StructType

from cursor_gateway.dialects.deltas import ActionDisplay, AgentTools, TextStyle
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import is_hash, is_name, is_reserved
from cursor_gateway.model.costs import Budget, Price
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.requests import Fences, NonEmpty, Priority, WhenBusy, WhenClientLeaves
from cursor_gateway.schedules import Schedule
from cursor_gateway.webhooks.webhook import Webhook

T = TypeVar("T", bound=Struct)


SourceName: TypeAlias = Literal["auto", "cli", "acp", "sdk", "replay"]
LogFormat: TypeAlias = Literal["auto", "human", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_ALIASES = {"opus": "opus", "sonnet": "sonnet", "haiku": "haiku", "gpt-4o": "gpt", "gpt-4o-mini": "mini"}
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=30 * 24 * 3600)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Limit: TypeAlias = Annotated[int, Meta(ge=0)]  # 0 has a meaning of its own


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text in each annotation describes the setting for people."""

    # --- where it listens, and to whom
    host: Annotated[NonEmpty, "The address to listen on. Any address other than loopback requires API keys."] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65535), "The port to listen on; 0 chooses a free one."] = 8787
    api_keys: Annotated[
        dict[str, str], "API keys: names and the hashes of their keys, as printed by `cursor-gateway key NAME`."
    ] = {}
    allowed_hosts: Annotated[list[str], "Additional host names that clients may use (the Host header)."] = []
    allowed_origins: Annotated[
        list[str], "Origins of web pages that may call the API from a browser; none by default."
    ] = []
    page_url: Annotated[
        str,
        "The address at which people open the page, for links in answers; if empty, the one that the gateway listens "
        "on, unless that is a wildcard or a cluster's.",
    ] = ""
    webhooks: Annotated[
        dict[str, Webhook],
        "Addresses that are told when runs wait, finish or fail: a table of `url`, `secret`, `events`, `keys`, `body` "
        "and `allow_private` for each name.",
    ] = {}
    # --- what is run
    source: Annotated[
        SourceName,
        "The backend: `cli` starts cursor-agent for each run, `acp` keeps it running, `sdk` is Cursor's SDK, "
        "`replay` plays recordings; `auto` is `cli`, or without an agent the demo.",
    ] = "auto"
    agent_program: Annotated[
        str, "The path of the agent; if empty, `cursor-agent` or `agent` on PATH or in ~/.local/bin."
    ] = ""
    agent_version: Annotated[
        str,
        "The version that cursor-agent must have, or how it must begin, such as `2026.10.01`; if empty, any. With "
        "another one no agent is started.",
    ] = ""
    http1: Annotated[
        bool,
        "Let agents use HTTP/1.1, for networks whose proxies do not support HTTP/2 (`useHttp1ForAgent`). The SDK does "
        "so by itself if a proxy is set.",
    ] = False
    sandbox: Annotated[
        Literal["agent", "enabled", "disabled"],
        "Whether the agent's commands run in Cursor's sandbox: `agent` leaves it to the agent's own configuration.",
    ] = "agent"
    agent_user: Annotated[
        str,
        "The user that agents run as; if empty, the gateway's own. Linux only; the gateway needs `CAP_SETUID`, "
        "`CAP_SETGID` and `CAP_KILL`, and must be in that user's group.",
    ] = ""
    agent_cgroups: Annotated[
        bool, "Run each agent in a cgroup of its own, where the system lets the gateway make some (Linux, cgroup v2)."
    ] = True
    agent_memory_bytes: Annotated[
        Limit, "Memory of one agent and its commands; at the limit, the system ends them. 0 means no limit."
    ] = 0
    agent_cpus: Annotated[
        float, Meta(ge=0), "Processors that one agent and its commands may use, such as 1.5; 0 means no limit."
    ] = 0
    agent_tasks: Annotated[Limit, "Processes and threads of one agent and its commands; 0 means no limit."] = 0
    agent_environment: Annotated[
        list[str], "Names of additional environment variables to pass to the agent; `PREFIX*` for several."
    ] = []
    agent_headers: Annotated[
        dict[str, str], "Headers that the agent adds to its own requests (`--header`); visible in the process list."
    ] = {}
    model: Annotated[NonEmpty, "The default model."] = "auto"
    model_aliases: Annotated[
        dict[str, str],
        "Maps other model names, and words in `claude-…` and `gpt-4…` names, to a model, or to a word, which selects "
        "the newest model with that word in its name.",
    ] = msgspec.field(default_factory=lambda: dict(_ALIASES))
    mode: Annotated[Mode, "The default mode."] = "agent"
    workspace: Annotated[str, "The default workspace; if empty, the folder in which the gateway was started."] = ""
    workspace_roots: Annotated[
        list[str], "Requests may use these folders and those below them; if empty, `workspace` and below."
    ] = []
    trust: Annotated[bool, "Tell the agent to trust the allowed workspaces (`--trust`)."] = True
    refuse_workspace_hooks: Annotated[
        bool,
        "Refuse to work in folders that bring hooks, MCP servers, plugins or allowed commands for the agent: in "
        "`.cursor` (`hooks.json`, `mcp.json`, `cli.json`, `permissions.json`, `sandbox.json`, `settings.json`), "
        "`.claude` (`settings.json`, `settings.local.json`) or `.mcp.json`.",
    ] = True
    allow_workspace_hooks: Annotated[
        list[str], "Folders whose hooks, MCP servers and permissions are allowed all the same, with those below them."
    ] = []
    force: Annotated[bool, "Let the agent run every command without asking (`--force`). Dangerous."] = False
    allow: Annotated[
        list[str],
        "Rules for what the agent may do besides its own configuration: `Shell(git)`, `Mcp(server:tool)`, "
        "`WebFetch(example.com)`; with `acp` also `Write(src/**)`.",
    ] = []
    permissions: Annotated[
        Literal["deny", "ask"],
        "What happens if no rule allows a command: `ask` lets callers allow it, for themselves only; `deny` does not.",
    ] = "ask"
    approvals: Annotated[
        Literal["agent", "hooks"],
        "How the CLI decides about commands and MCP tools: `agent` uses the agent's own rules and does not wait for "
        "you; `hooks` asks the gateway before each call, and waits. `hooks` needs a version of the agent that passes "
        "`cursor-gateway verify --source cli`.",
    ] = "agent"
    sdk_settings: Annotated[
        bool,
        "Load rules, AGENTS.md, MCP servers and hooks of the workspace and the user, as the CLI does (`sdk`); never in "
        "runs with the caller's tools.",
    ] = True
    sdk_bridge: Annotated[
        list[str], "The command that starts the bridge of Cursor's SDK; if empty, the bundled one."
    ] = []
    max_agents: Annotated[
        int, Meta(ge=1, le=64), "Maximum number of agent processes (`acp`), not counting those that wait for a person."
    ] = 4
    spare_agents: Annotated[
        int,
        Meta(ge=0, le=16),
        "Maximum number of agents that are started in advance and wait for a prompt (`cli`); 0: none, and no sessions "
        "are opened in advance (`acp`).",
    ] = 1
    spare_seconds: Annotated[
        Seconds, "How long what was started in advance is kept after the last run (`cli`, `acp`)."
    ] = 300
    schedules: Annotated[
        dict[str, Schedule],
        "Requests that are sent at certain times: a table of `cron`, `time_zone`, `message`, `key`, `overlaps`, and "
        "`model`, `mode`, `workspace`, `source`, `needs` and `priority` as in a request, for each name.",
    ] = {}
    # --- how answers look
    fences: Annotated[Fences, "Whether code blocks become separate documents."] = "split"
    agent_tools: Annotated[
        AgentTools, "How the OpenAI API reports the agent's tools; with `tool_calls`, some clients run them again."
    ] = "reasoning"
    text: Annotated[
        TextStyle,
        "What the OpenAI and Anthropic APIs add to the agent's text: `exact` nothing; `readable` a blank line between "
        "texts before and after a tool call (chat completions), and a last line with a link if a command was not run "
        "and can be allowed.",
    ] = "exact"
    messages_actions: Annotated[
        ActionDisplay,
        "How the Messages API shows the agent's actions: as lines in `thinking` if the request asks for thinking, as "
        "`text`, as blocks of server tools (`native`), or not at all.",
    ] = "thinking"
    # --- limits
    max_runs: Annotated[Count, "Maximum number of active runs; the next one gets 429."] = 8
    max_runs_per_key: Annotated[Limit, "Maximum number of active runs of one API key; 0 means `max_runs`."] = 0
    max_waiting_per_key: Annotated[
        Limit, "Maximum number of one API key's runs that wait for tool results; 0 means `max_runs`."
    ] = 0
    queue_seconds: Annotated[
        Seconds, "How long a request waits for a free slot while other API keys use more than their share."
    ] = 30
    queue_ttl_seconds: Annotated[
        Limit,
        "How long a request whose answer is read later (`Prefer: respond-async`, or `background`) may wait in the "
        "queue for a free slot; 0 disables the queue, and such a request gets 429.",
    ] = 24 * 3600
    max_queued_per_key: Annotated[
        Count, "Maximum number of one API key's requests in the queue; the next gets 429."
    ] = 1000
    priorities: Annotated[
        dict[str, Priority],
        "The highest `priority` that each API key may use, by its name; the others may use 0 and below.",
    ] = {}
    admin_keys: Annotated[
        list[str],
        "The names of the API keys that may see the whole queue and drain runners; without API keys, everyone may.",
    ] = []
    requests_per_minute: Annotated[Limit, "Maximum number of one API key's requests in a minute; 0 means no limit."] = 0
    prices: Annotated[
        dict[str, Price],
        "What tokens cost: `input`, `output` and `cached` in US dollars per million, by model "
        "or by the beginning of its name and `*`.",
    ] = {}
    budgets: Annotated[
        dict[str, Budget],
        "What API keys may use, by days and months of UTC: `usd_per_day`, `usd_per_month`, `tokens_per_day` and "
        "`tokens_per_month` for the name of a key, or for `*`, each of the others.",
    ] = {}
    max_body_bytes: Annotated[int, Meta(ge=1024), "Maximum size of a request body."] = 20 * 1024 * 1024
    max_images: Annotated[Count, "Maximum number of images in a request."] = 50
    max_output_bytes: Annotated[int, Meta(ge=1024), "Maximum output of the agent in one run."] = 256 * 1024 * 1024
    head_seconds: Annotated[Seconds, "Timeout for request headers, and for idle connections."] = 60
    body_seconds: Annotated[Seconds, "Timeout for request bodies."] = 30
    first_event_seconds: Annotated[Seconds, "Timeout for the agent's first event."] = 120
    idle_seconds: Annotated[Seconds, "Timeout between two events of the agent; 15 minutes of silence are normal."] = (
        1800
    )
    run_seconds: Annotated[Seconds, "Maximum length of a run."] = 4 * 3600
    grace_seconds: Annotated[Seconds, "How long the agent may take to exit by itself before it is killed."] = 2
    hold_seconds: Annotated[
        Seconds, "How long a stream waits for its first event, so that failures get an HTTP status."
    ] = 20
    keep_alive_seconds: Annotated[Seconds, "Interval of keep-alive comments in a stream."] = 15
    drain_seconds: Annotated[Seconds, "How long active runs may take to finish when the gateway shuts down."] = 10
    drain_notice_seconds: Annotated[
        float,
        Meta(ge=0, le=3600),
        "How long the gateway still accepts requests when it shuts down, while `/readyz` returns 503: load balancers "
        "need that time.",
    ] = 0
    when_client_leaves: Annotated[WhenClientLeaves, "What happens to a run when its last reader disconnects."] = (
        "cancel"
    )
    reconnect_seconds: Annotated[
        Seconds,
        "How long a run waits for a client that retries by itself (Codex, Claude Code) to reconnect, and how long "
        "the same question counts as a retry: after an answer from Claude Code, after a failure from any client.",
    ] = 5
    when_busy: Annotated[
        WhenBusy,
        "What happens to a request while its conversation has an active run: 409, or it waits, or it cancels the run.",
    ] = "refuse"
    answer_seconds: Annotated[Seconds, "How long a run waits for tool results, answers and decisions."] = 600
    wait_for_approval_seconds: Annotated[
        float,
        Meta(ge=0, le=24 * 3600),
        "How long the run of a client that cannot be asked (the OpenAI and Anthropic APIs) waits for somebody to allow "
        "a command on the page or with `permissions --watch`; 0 does not wait, and the command is not run.",
    ] = 0
    progress_seconds: Annotated[Seconds, "How often an agent that waits for tool results gets a progress message."] = 10
    account_error_seconds: Annotated[
        float,
        Meta(ge=0, le=24 * 3600),
        "How long login errors and usage limits are remembered and returned without starting an agent; 0 disables "
        "this.",
    ] = 60
    models_seconds: Annotated[Seconds, "How long the list of models is cached."] = 600
    # --- storage, recordings and logs
    data_dir: Annotated[str, "The data directory; if empty, the platform's default."] = ""
    runtime_dir: Annotated[
        str,
        "The directory where gateways of one machine find each other's agents; if empty, `/tmp/cursor-gateway-UID`.",
    ] = ""
    history: Annotated[bool, "Store conversations and answers; if false, they are lost when the gateway stops."] = True
    store: Annotated[
        str,
        "The PostgreSQL database of the history, as `postgresql://user@host/database`; if empty, a file in the data "
        "directory.",
    ] = ""
    public_links: Annotated[
        bool,
        "Let callers create read-only links to their conversations, which work without an API key until they are "
        "revoked.",
    ] = False
    snapshots: Annotated[
        bool, "Keep the contents of files that change in a conversation, so that they can be restored exactly."
    ] = True
    history_days: Annotated[
        float, Meta(ge=0, le=36500), "Delete conversations that have not been used for this many days; 0 keeps them."
    ] = 0
    max_history_bytes: Annotated[
        int, Meta(ge=1024 * 1024), "Maximum size of the history; the oldest conversations are deleted first."
    ] = 2 * 1024 * 1024 * 1024
    max_history_bytes_per_key: Annotated[
        Limit, "Maximum size of one API key's events; the oldest are deleted first. 0 means no limit."
    ] = 0
    record_dir: Annotated[str, "Write a recording of every run to this folder; if empty, none."] = ""
    record_prompts: Annotated[bool, "Whether recordings include the prompts."] = True
    replay_dir: Annotated[str, "The folder of recordings for `replay`; if empty, the built-in demo."] = ""
    replay_speed: Annotated[
        float, Meta(ge=0, le=1e6), "Playback speed of recordings: 1 as recorded, 2 twice as fast, 0 without pauses."
    ] = 1.0
    log_level: Annotated[LogLevel, "The minimum log level."] = "info"
    log_format: Annotated[LogFormat, "Readable text or JSON; `auto` is text on a terminal, otherwise JSON."] = "auto"
    opentelemetry: Annotated[
        Literal["auto", "on", "off"],
        "Whether a trace of each run is sent with OpenTelemetry (extra `otel`), as the variables `OTEL_…` say; `auto`: "
        "if they name an endpoint.",
    ] = "auto"
    # --- several gateways on one database
    role: Annotated[
        Literal["all", "front", "runner"],
        "What this process does for a cluster on one database (`store`): serve clients (`front`), run agents "
        "(`runner`), or both.",
    ] = "all"
    volumes: Annotated[
        dict[str, str],
        "Folders that several machines share, each with the same name on all of them; requests may use `NAME/PATH` "
        "as the workspace. Only with `store`.",
    ] = {}
    labels: Annotated[
        list[str],
        "Labels of this runner, such as `gpu`; it takes requests whose `needs` are all among them. Only with `store`.",
    ] = []
    beat_seconds: Annotated[Seconds, "How often a process in a cluster sends a heartbeat."] = 3
    lease_seconds: Annotated[
        Seconds,
        "How long a process in a cluster may go without a heartbeat before others end its runs; use several times "
        "`beat_seconds`.",
    ] = 15
    database_seconds: Annotated[
        Seconds, "How long an agent waits for a database that is unavailable before its run ends."
    ] = 300
    # --- the command line as a client
    url: Annotated[str, "The gateway that other commands use; if empty, your own on this machine."] = ""
    api_key: Annotated[str, "The API key that other commands send."] = ""
    verify_gateway: Annotated[
        bool,
        "Send prompts and the key to a port of this machine only if it is your own gateway; set to false for a "
        "gateway in a container, behind a tunnel or of another user.",
    ] = True

    def __repr__(self) -> str:
        """Without secrets: it may end up in a log."""
        shown = {setting.name: setting.masked(getattr(self, setting.name)) for setting in every_setting()}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def subset(settings: Settings, kind: type[T]) -> T:
    """A struct whose fields are all settings, with the same names."""
    return kind(**{field.name: getattr(settings, field.name) for field in msgspec.structs.fields(kind)})


# --- what there is to set -------------------------------------------------------------------------------

PREFIX = "CURSOR_GATEWAY_"
FILE_VARIABLE = f"{PREFIX}CONFIG"  # where the file is
# `LIVE`: whether tests may use the real agent. `AGENT`: marks the processes of an agent, which may run these commands.
_NO_SETTINGS = frozenset({FILE_VARIABLE, f"{PREFIX}LIVE", f"{PREFIX}AGENT"})
# Headers carry tokens, a URL a password or a token.
_SECRET = frozenset({"api_keys", "agent_headers", "api_key", "store", "webhooks"})

# Whose defaults are right for nearly everybody.
_ADVANCED_NAMES = """
agent_cgroups agent_tasks agent_environment agent_headers model_aliases sdk_settings sdk_bridge max_agents
spare_agents spare_seconds
messages_actions max_waiting_per_key queue_seconds max_body_bytes max_images max_output_bytes head_seconds
body_seconds first_event_seconds idle_seconds grace_seconds hold_seconds keep_alive_seconds drain_notice_seconds
reconnect_seconds progress_seconds account_error_seconds models_seconds runtime_dir record_prompts replay_speed
beat_seconds lease_seconds database_seconds
"""
_ADVANCED = frozenset(_ADVANCED_NAMES.split())

_GROUPS = {  # by the first setting of each
    "host": "Network and access",
    "source": "Agent",
    "fences": "Output",
    "max_runs": "Limits",
    "data_dir": "Storage and logging",
    "role": "Cluster",
    "url": "Command line",
}

SettingKind: TypeAlias = StrType | IntType | FloatType | BoolType | LiteralType | ListType | DictType


class Setting(Struct, frozen=True, kw_only=True):
    name: str
    group: str
    kind: SettingKind
    default: object
    meaning: str
    type: Any

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def is_advanced(self) -> bool:
        return self.name in _ADVANCED

    @property
    def takes(self) -> str:
        """What it accepts, in words."""
        return _takes(self.kind)

    def masked(self, value: object) -> object:
        """For people, without secrets; of keys and headers the names stay."""
        if self.name not in _SECRET or not value:
            return value
        return dict.fromkeys(value, "…") if isinstance(value, dict) else "…"


@cache
def every_setting() -> tuple[Setting, ...]:
    """In their order, which is that of their groups."""
    found, group, defaults = [], "", Settings()
    for field in msgspec.structs.fields(Settings):
        name, kind, group = field.name, msgspec.inspect.type_info(field.type), _GROUPS.get(field.name, group)
        assert isinstance(kind, SettingKind)
        meaning = field.type.__metadata__[-1]
        default = getattr(defaults, name)
        found.append(Setting(name=name, group=group, kind=kind, default=default, meaning=meaning, type=field.type))
    return tuple(found)


# --- putting them together ------------------------------------------------------------------------------


class Loaded(Struct, frozen=True):
    settings: Settings
    origins: dict[str, str]  # of each setting: `default`, `file PATH`, `CURSOR_GATEWAY_PORT` or `--port`


_Layer: TypeAlias = Literal["file", "environment", "flags"]


def load(
    file: Mapping[str, object], environ: Mapping[str, str], flags: Mapping[str, object], *, path: str = "config.toml"
) -> Loaded:
    """The later of file, environment and flags wins. Flags that are None or () were not given.

    Raises `SettingsError` for a name that is unknown and a value that is wrong, also where another one wins.
    """
    names = {setting.name: setting for setting in every_setting()}
    variables = {setting.variable: setting for setting in every_setting()}
    values: dict[str, object] = {}
    origins = dict.fromkeys(names, "default")

    def take(setting: Setting, layer: _Layer, origin: str, value: object) -> None:
        values[setting.name] = _read(setting, layer, origin, value)
        origins[setting.name] = origin

    for name, value in file.items():
        take(_known(name, names, f"file {path}"), "file", f"file {path}", value)
    for name, text in environ.items():
        if name.startswith(PREFIX) and name not in _NO_SETTINGS:
            take(_known(name, variables, "environment"), "environment", name, text)
    for name, value in flags.items():
        if value is not None and value != ():
            setting = _known(name, names, "flags")
            take(setting, "flags", setting.flag, value)
    return Loaded(msgspec.convert(values, Settings), origins)


def _known(name: str, settings: Mapping[str, Setting], where: str) -> Setting:
    if name in settings:
        return settings[name]
    # without the prefix: it would make all variables look alike
    nearest = difflib.get_close_matches(
        name.removeprefix(PREFIX).lower(), [setting.name for setting in every_setting()], n=1, cutoff=0
    )
    written = next(written for written, setting in settings.items() if setting.name in nearest)
    remedy = f"did you mean `{written}`?"
    if name.startswith((f"{PREFIX}SERVICE_", f"{PREFIX}PORT_")):
        remedy = _KUBERNETES
    raise SettingsError(f"unknown setting {name!r} ({where}); {remedy}")


_KUBERNETES = "Kubernetes sets it for a Service named cursor-gateway; set `enableServiceLinks: false` in the pod."


def _read(setting: Setting, layer: _Layer, origin: str, value: object) -> object:
    try:
        read: object = msgspec.convert(_given(setting.kind, layer, value), setting.type)
    except (KeyError, ValueError, RecursionError, msgspec.DecodeError) as error:
        if _has_tables(setting.kind) and isinstance(error, msgspec.ValidationError):  # which quotes no values
            reason, _, field = str(error).partition(" - at `$[...]")  # the decoder does not name the table
            field = f" (`{field.strip('.`')}`)" if field.strip(".`") else ""
            raise SettingsError(
                f"the setting `{setting.name}` ({origin}) is wrong: {reason}{field}; correct it{_misplaced(value)}.",
                param=setting.name,
            ) from None
        raise _wrong(setting, layer, origin, value) from None  # what was raised may hold a secret
    if setting.name == "api_keys":
        assert isinstance(read, dict)
        _check_keys(read, origin)
    return read


def _has_tables(kind: SettingKind) -> bool:
    return isinstance(kind, DictType) and isinstance(kind.value_type, StructType)


def _given(kind: SettingKind, layer: _Layer, value: object) -> object:
    if layer == "file":
        return value
    if isinstance(value, str):
        return _from_text(kind, value)
    return _pairs(value) if isinstance(kind, DictType) and isinstance(value, tuple) else value


def _wrong(setting: Setting, layer: _Layer, origin: str, value: object) -> SettingsError:
    problem = "not what it takes:" if setting.name in _SECRET else f"{_short(value)}, but takes"
    takes = _takes(setting.kind) if layer == "file" else _takes_text(setting.kind)
    if layer == "file" and isinstance(value, str) and isinstance(setting.kind, IntType | FloatType | BoolType):
        takes += ", without quotes"
    remedy = f"correct it, or remove it to use {msgspec.json.encode(setting.default).decode()}{_misplaced(value)}."
    if setting.name == "port" and isinstance(value, str) and value.startswith("tcp://"):
        remedy = _KUBERNETES
    return SettingsError(f"the setting `{setting.name}` ({origin}) is {problem} {takes}; {remedy}", param=setting.name)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= 100 else f"{text[:100]}…"


def _misplaced(value: object) -> str:
    """TOML's tables end where the next one begins: settings below one belong to it."""
    if not isinstance(value, Mapping):
        return ""
    found = [f"`{setting.name}`" for setting in every_setting() if setting.name in value]
    return f"; put {', '.join(found)} above all tables, not inside this one" if found else ""


def _check_keys(keys: Mapping[str, str], origin: str) -> None:
    """Names entries by their position: if names, hashes and keys are mixed up, no key must appear in a log."""
    owners: dict[str, int] = {}
    for place, (name, hashed) in enumerate(keys.items(), start=1):
        if is_reserved(name):
            reason = f"is named `{name}`, which is reserved for conversations from before API keys were set; rename it"
        elif not is_name(name):
            reason = "has an invalid name: use 1 to 64 letters, digits, `_`, `.` or `-`, not the key itself"
        elif not is_hash(hashed):
            reason = f"is not a hash: use `sha256:` and 64 hex digits, not the key itself{_misplaced(keys)}"
        elif hashed in owners:
            reason = f"has the same key as entry {owners[hashed]}: each owner needs their own"
        else:
            owners[hashed] = place
            continue
        raise SettingsError(
            f"the setting `api_keys` ({origin}): entry {place} {reason}; "
            "create a key and its hash with `cursor-gateway key NAME`.",
            param="api_keys",
        )


# --- values as text -------------------------------------------------------------------------------------

_TRUTH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _from_text(kind: SettingKind, text: str) -> object:
    """Raises `KeyError` or `ValueError` for what cannot be read."""
    match kind:
        case StrType():
            return text
        case LiteralType():
            return text.strip()
        case IntType():
            return int(text)
        case FloatType():
            return float(text)
        case BoolType():
            return _TRUTH[text.strip().lower()]
        case ListType():
            return msgspec.json.decode(text, type=list[str]) if _is_json(text, "[]") else _items(text)
        case DictType() if _has_tables(kind):
            return msgspec.json.decode(text)
        case DictType(value_type=IntType()):
            if _is_json(text, "{}"):
                return msgspec.json.decode(text, type=dict[str, int])
            return {name: int(value) for name, value in _pairs(_items(text)).items()}
        case DictType():
            return msgspec.json.decode(text, type=dict[str, str]) if _is_json(text, "{}") else _pairs(_items(text))


def _is_json(text: str, brackets: str) -> bool:
    """A single address such as `[::1]` is not."""
    text = text.strip()
    is_address = set(text) <= set("[]:.0123456789abcdefABCDEF")
    return text.startswith(brackets[0]) and text.endswith(brackets[1]) and (not is_address or text == "[]")


def _items(text: str) -> list[str]:
    items = [item for part in text.split(",") if (item := part.strip())]
    if any(item.lstrip("[")[:1] in ("'", '"', "{") for item in items):
        raise ValueError("quotes are not removed")
    return items


def _pairs(items: Iterable[str]) -> dict[str, str]:
    pairs = [item.partition("=") for item in items]
    read = {name.strip(): value.strip() for name, mark, value in pairs if mark}
    if len(read) != len(pairs):
        raise ValueError("a pair without `=`, or a name that is given twice")
    return read


def _takes(kind: SettingKind) -> str:
    match kind:
        case StrType(min_length=least):
            return "a non-empty string" if least else "a string"
        case IntType(ge=least, le=most):
            return f"a whole number{_bounds(least, None, most)}"
        case FloatType(ge=least, gt=above, le=most):
            return f"a number{_bounds(least, above, most)}"
        case BoolType():
            return "true or false"
        case LiteralType(values=values):
            return f"one of {', '.join(f'`{value}`' for value in values)}"
        case ListType():
            return "a list of strings"
        case DictType(value_type=IntType()):
            return "a table of whole numbers"
        case DictType():
            return "a table of tables" if _has_tables(kind) else "a table of strings"


def _takes_text(kind: SettingKind) -> str:
    if isinstance(kind, ListType):
        return "texts separated by commas, without quotes, or a JSON list of texts"
    if isinstance(kind, DictType) and _has_tables(kind):
        return "a JSON object of objects"
    if isinstance(kind, DictType) and isinstance(kind.value_type, IntType):
        return "`name=number` pairs separated by commas, or a JSON object of whole numbers"
    if isinstance(kind, DictType):
        return "`name=value` pairs separated by commas, each name once and without quotes, or a JSON object of texts"
    return _takes(kind)


def _bounds(least: float | None, above: float | None, most: float | None) -> str:
    words = {"at least": least, "above": above, "at most": most}
    limits = [f"{word} {bound:.0f}" for word, bound in words.items() if bound is not None]
    return f", {' and '.join(limits)}"


# --- what must hold before the gateway listens ----------------------------------------------------------


def is_loopback(host: str) -> bool:
    """False for what is not understood."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def check_exposed(settings: Settings) -> None:
    """Anyone who can use the gateway can run commands on its machine."""
    if not settings.api_keys and not settings.store and not is_loopback(settings.host):  # a database may have keys
        raise SettingsError(
            f"the gateway refuses to listen on {settings.host!r} without API keys: anyone who can connect could run "
            "commands on this machine; create one with `cursor-gateway key NAME`, or listen on 127.0.0.1.",
            param="host",
        )


def check_schedules(settings: Settings) -> None:
    """Their requests wait in the queue, and their runs are somebody's."""
    if settings.schedules and not settings.queue_ttl_seconds:
        raise SettingsError(
            "the setting `schedules` needs the queue, which `queue_ttl_seconds = 0` disables; remove one of them.",
            param="schedules",
        )
    for name, schedule in settings.schedules.items():
        if not is_name(name):
            raise SettingsError(
                "the setting `schedules` has an invalid name; use 1 to 64 letters, digits, `_`, `.` or `-`.",
                param="schedules",
            )
        if settings.api_keys and not settings.store and schedule.key not in settings.api_keys:  # a database has keys
            raise SettingsError(
                f"the schedule {name!r} needs `key`, the name of one of `api_keys`, which its runs belong to.",
                param="schedules",
            )


def check_budgets(settings: Settings) -> None:
    """Money needs prices."""
    limited = [
        budget for budget in settings.budgets.values() if (budget.usd_per_day, budget.usd_per_month) != (None, None)
    ]
    if limited and not settings.prices:
        raise SettingsError(
            "the setting `budgets` limits money, but without `prices` nothing has a cost; set `prices`, or limit "
            "tokens.",
            param="budgets",
        )
