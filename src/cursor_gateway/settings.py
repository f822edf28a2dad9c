"""What the operator decides, as one typed object: each setting with its default and its meaning.

Defaults, the parsed file, the environment and flags in; the settings, each with where it came from, out.
A name that nobody knows is refused: a misspelt setting is worse than none.
"""

import difflib
import ipaddress
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.inspect import BoolType, DictType, FloatType, IntType, ListType, LiteralType, Metadata, StrType

from cursor_gateway.dialects.deltas import AgentTools
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import is_hash, is_name, is_reserved
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.run_info import Fences, WhenBusy, WhenClientLeaves

SourceName: TypeAlias = Literal["auto", "cli", "acp", "sdk", "replay"]
Permissions: TypeAlias = Literal["deny", "ask"]
LogFormat: TypeAlias = Literal["auto", "human", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=30 * 24 * 3600)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # --- where it listens, and to whom
    host: Annotated[
        str, Meta(min_length=1, description="The address to listen on; any but loopback needs API keys.")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="The port to listen on; 0 takes a free one.")] = 8787
    api_keys: Annotated[
        dict[str, str],
        Meta(description="Who may use the gateway: names with the hashes of their keys (`cursor-gateway key NAME`)."),
    ] = {}
    allowed_hosts: Annotated[
        list[str], Meta(description="Further names under which clients reach the gateway (the Host header).")
    ] = []
    allowed_origins: Annotated[
        list[str], Meta(description="Web pages (origins) that may call the API from a browser; none by default.")
    ] = []
    # --- what is run
    source: Annotated[
        SourceName,
        Meta(
            description="What answers: `cli` starts cursor-agent for each run, `acp` keeps it alive, `sdk` is Cursor's "
            "SDK, `replay` plays recordings; `auto` is `cli`, or without an agent the demo."
        ),
    ] = "auto"
    agent_program: Annotated[
        str,
        Meta(description="Cursor's agent; empty looks for `cursor-agent`, then `agent`, on PATH and in ~/.local/bin."),
    ] = ""
    agent_environment: Annotated[
        list[str],
        Meta(description="Further environment variables that the agent is given, by name; `PREFIX*` for many."),
    ] = []
    agent_headers: Annotated[
        dict[str, str],
        Meta(description="Headers that the agent adds to its own requests (`--header`); visible in the process list."),
    ] = {}
    model: Annotated[str, Meta(min_length=1, description="The model of requests that name none.")] = "auto"
    mode: Annotated[Mode, Meta(description="The mode of requests that name none.")] = "agent"
    workspace: Annotated[
        str, Meta(description="The folder of requests that name none; empty is where the gateway was started.")
    ] = ""
    workspace_roots: Annotated[
        list[str],
        Meta(description="Requests may name folders at or below these; empty allows only `workspace` and below."),
    ] = []
    trust: Annotated[bool, Meta(description="Tell the agent to trust the allowed workspaces (`--trust`).")] = True
    refuse_workspace_hooks: Annotated[
        bool,
        Meta(
            description="Refuse workspaces that bring hooks, MCP servers or permissions of their own: `hooks.json`, "
            "`mcp.json` or `cli.json` in `.cursor`."
        ),
    ] = False
    force: Annotated[
        bool, Meta(description="Let the agent run every command without asking (`--force`). Dangerous.")
    ] = False
    allow: Annotated[
        list[str],
        Meta(description="What an agent that is kept alive (`acp`) may do: rules like `Shell(git)`, `Write(src/**)`."),
    ] = []
    permissions: Annotated[
        Permissions, Meta(description="What such an agent hears where no rule allows it: no, or what the caller says.")
    ] = "deny"
    sdk_bridge: Annotated[
        list[str], Meta(description="The command that starts the bridge of Cursor's SDK; empty is the one it brings.")
    ] = []
    max_agents: Annotated[int, Meta(ge=1, le=64, description="Agents that are kept alive (`acp`).")] = 4
    # --- how answers look
    fences: Annotated[Fences, Meta(description="Whether code in the text becomes documents of its own.")] = "split"
    agent_tools: Annotated[
        AgentTools,
        Meta(
            description="How the OpenAI API tells of the agent's own tools; `tool_calls`: some clients run them again."
        ),
    ] = "reasoning"
    # --- limits
    max_runs: Annotated[int, Meta(ge=1, description="Runs at the same time; the next one gets 429.")] = 8
    max_runs_per_key: Annotated[
        int, Meta(ge=0, description="Runs of one API key at the same time; 0 is as many as `max_runs`.")
    ] = 0
    max_waiting_per_key: Annotated[
        int,
        Meta(ge=0, description="Runs of one API key that wait for their callers' tools; 0 is as many as `max_runs`."),
    ] = 0
    queue_seconds: Annotated[
        Seconds,
        Meta(description="How long a request waits for a place while other API keys hold more than their share."),
    ] = 30
    requests_per_minute: Annotated[
        int, Meta(ge=0, description="Requests of one API key in a minute; the next one gets 429. 0 is any number.")
    ] = 0
    max_body_bytes: Annotated[int, Meta(ge=1024, description="The largest request.")] = 20 * 1024 * 1024
    max_images: Annotated[int, Meta(ge=1, description="Images in one request.")] = 50
    max_output_bytes: Annotated[int, Meta(ge=1024, description="The most that the agent may write in one run.")] = (
        256 * 1024 * 1024
    )
    head_seconds: Annotated[
        Seconds, Meta(description="How long a request's head may take to arrive, and a connection to ask anything.")
    ] = 60
    body_seconds: Annotated[Seconds, Meta(description="How long a request's body may take to arrive.")] = 30
    first_event_seconds: Annotated[Seconds, Meta(description="How long the agent may take to say anything at all.")] = (
        120
    )
    idle_seconds: Annotated[
        Seconds, Meta(description="How long the agent may be silent; a quarter of an hour of it is normal.")
    ] = 1800
    run_seconds: Annotated[Seconds, Meta(description="How long a run may take altogether.")] = 4 * 3600
    grace_seconds: Annotated[
        Seconds,
        Meta(description="How long the agent may take to end by itself, after its result or when it is told to."),
    ] = 2
    hold_seconds: Annotated[
        Seconds,
        Meta(description="How long a streaming reply waits for its first event, so that failures have their status."),
    ] = 20
    keep_alive_seconds: Annotated[Seconds, Meta(description="How often a silent stream gets a comment.")] = 15
    drain_seconds: Annotated[Seconds, Meta(description="How long runs may go on when the gateway is told to stop.")] = (
        10
    )
    when_client_leaves: Annotated[
        WhenClientLeaves, Meta(description="What happens to a run whose last reader has gone.")
    ] = "cancel"
    when_busy: Annotated[
        WhenBusy, Meta(description="What happens to a request for a conversation that has a run: 409, or it waits.")
    ] = "refuse"
    answer_seconds: Annotated[
        Seconds, Meta(description="How long a run waits for the results of its caller's tools.")
    ] = 600
    progress_seconds: Annotated[
        Seconds, Meta(description="How often an agent that waits for a caller's tool hears that it still runs.")
    ] = 10
    account_error_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=24 * 3600,
            description="How long a login error or a usage limit is answered from memory, without starting an agent; "
            "0 asks the agent each time.",
        ),
    ] = 60
    models_seconds: Annotated[Seconds, Meta(description="How long the list of models is good for.")] = 600
    # --- what is kept and told
    data_dir: Annotated[str, Meta(description="Where the gateway keeps its files; empty is the platform's place.")] = ""
    history: Annotated[
        bool, Meta(description="Keep conversations and answers; without it they are gone when the gateway stops.")
    ] = True
    history_days: Annotated[
        float,
        Meta(ge=0, le=36500, description="Conversations unused for so long are deleted; 0 keeps them."),
    ] = 0
    max_history_bytes: Annotated[
        int, Meta(ge=1024 * 1024, description="The most that the history may take; the oldest conversations go first.")
    ] = 2 * 1024 * 1024 * 1024
    max_history_bytes_per_key: Annotated[
        int,
        Meta(
            ge=0, description="The most that one API key's events may take, its oldest conversations first; 0 is any."
        ),
    ] = 0
    record_dir: Annotated[
        str, Meta(description="Write a recording of every run into this folder; empty writes none.")
    ] = ""
    record_prompts: Annotated[bool, Meta(description="Whether recordings hold the prompts.")] = True
    replay_dir: Annotated[
        str, Meta(description="The recordings that `replay` plays; empty plays the built-in demo.")
    ] = ""
    replay_speed: Annotated[
        float,
        Meta(ge=0, le=1e6, description="How fast recordings are played: 1 as recorded, 2 twice as fast, 0 at once."),
    ] = 1.0
    log_level: Annotated[LogLevel, Meta(description="The least important lines that are logged.")] = "info"
    log_format: Annotated[
        LogFormat, Meta(description="Lines for people or JSON; `auto` looks whether a terminal reads them.")
    ] = "auto"
    # --- the command line as a client
    url: Annotated[str, Meta(description="The gateway that the other commands talk to; empty tries the local one.")] = (
        ""
    )
    api_key: Annotated[str, Meta(description="The key that the other commands send.")] = ""
    verify_gateway: Annotated[
        bool,
        Meta(
            description="Send prompts and the key to a port of this machine only if your own gateway listens there; "
            "false for one in a container, behind a tunnel or of another user."
        ),
    ] = True

    def __repr__(self) -> str:
        """Without secrets: it may end up in a log."""
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in _masked(self))})"


# --- what there is to set -------------------------------------------------------------------------------

PREFIX = "CURSOR_GATEWAY_"
FILE_VARIABLE = f"{PREFIX}CONFIG"  # where the file is
_NO_SETTINGS = frozenset({FILE_VARIABLE, f"{PREFIX}LIVE"})  # the second: whether tests may use the real agent
_SECRET = frozenset({"api_keys", "agent_headers", "api_key"})  # headers carry tokens, too

_GROUPS = {  # by the first setting of each
    "host": "Where it listens, and to whom",
    "source": "What is run",
    "fences": "How answers look",
    "max_runs": "Limits",
    "data_dir": "What is kept and told",
    "url": "The command line as a client",
}

Kind: TypeAlias = StrType | IntType | FloatType | BoolType | LiteralType | ListType | DictType


class Setting(Struct, frozen=True, kw_only=True):
    name: str
    group: str
    kind: Kind
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
    found, group = [], ""
    types = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    described = msgspec.inspect.type_info(Settings)
    assert isinstance(described, msgspec.inspect.StructType)
    defaults = Settings()
    for field in described.fields:
        assert isinstance(field.type, Metadata)
        assert isinstance(field.type.type, Kind)
        group = _GROUPS.get(field.name, group)
        found.append(
            Setting(
                name=field.name,
                group=group,
                kind=field.type.type,
                default=getattr(defaults, field.name),
                meaning=(field.type.extra_json_schema or {})["description"],
                type=types[field.name],
            )
        )
    return tuple(found)


def _masked(settings: Settings) -> Iterable[tuple[str, object]]:
    return ((setting.name, setting.masked(getattr(settings, setting.name))) for setting in every_setting())


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
    mend = f"the nearest is `{written}`: correct it, or take it out."
    if name.startswith((f"{PREFIX}SERVICE_", f"{PREFIX}PORT_")):
        mend = _KUBERNETES
    raise SettingsError(f"there is no setting {name!r} ({where}); {mend}")


_KUBERNETES = "Kubernetes sets it for a Service named cursor-gateway: give the pod `enableServiceLinks: false`."


def _read(setting: Setting, layer: _Layer, origin: str, value: object) -> object:
    try:
        read: object = msgspec.convert(_given(setting.kind, layer, value), setting.type)
    except (KeyError, ValueError, RecursionError, msgspec.ValidationError):
        raise _wrong(setting, layer, origin, value) from None  # what was raised may hold a secret
    if setting.name == "api_keys":
        assert isinstance(read, dict)
        _check_keys(read, origin)
    return read


def _given(kind: Kind, layer: _Layer, value: object) -> object:
    match layer:
        case "file":
            return value
        case "environment" | "flags":
            if isinstance(value, str):
                return _from_text(kind, value)
            return _pairs(value) if isinstance(kind, DictType) and isinstance(value, tuple) else value


def _wrong(setting: Setting, layer: _Layer, origin: str, value: object) -> SettingsError:
    told = "not what it takes:" if setting.name in _SECRET else f"{_short(value)}, but takes"
    takes = _takes(setting.kind) if layer == "file" else _takes_text(setting.kind)
    if layer == "file" and isinstance(value, str) and isinstance(setting.kind, IntType | FloatType | BoolType):
        takes += ", without quotes"
    mend = f"correct it, or leave it out for {msgspec.json.encode(setting.default).decode()}{_misplaced(value)}."
    if setting.name == "port" and isinstance(value, str) and value.startswith("tcp://"):
        mend = _KUBERNETES
    return SettingsError(f"the setting `{setting.name}` ({origin}) is {told} {takes}; {mend}", param=setting.name)


def _short(value: object) -> str:
    try:
        told = repr(value)
    except RecursionError:
        return "nested too deeply"
    return told if len(told) <= 100 else f"{told[:100]}…"


def _misplaced(value: object) -> str:
    """TOML's tables end where the next one begins: settings below one belong to it."""
    if not isinstance(value, Mapping):
        return ""
    found = [f"`{setting.name}`" for setting in every_setting() if setting.name in value]
    return f"; settings stand above all tables, but {', '.join(found)} stands in this one" if found else ""


def _check_keys(keys: Mapping[str, str], origin: str) -> None:
    """Names entries by their place: who mixes names, hashes and keys up must not find a key in a log."""
    owners: dict[str, int] = {}
    for place, (name, hashed) in enumerate(keys.items(), start=1):
        if is_reserved(name):
            reason = (
                f"is named `{name}`, which is reserved: it would see what was said before there were keys; rename it"
            )
        elif not is_name(name):
            reason = "has a wrong name: 1 to 64 letters, digits, `_`, `.` or `-`, and not the key itself"
        elif not is_hash(hashed):
            reason = f"is no hash: `sha256:` and 64 hex digits, never the key itself{_misplaced(keys)}"
        elif hashed in owners:
            reason = f"has the key of entry {owners[hashed]}: each owner needs another one"
        else:
            owners[hashed] = place
            continue
        raise SettingsError(
            f"the setting `api_keys` ({origin}): entry {place} {reason}; "
            "make a key and its hash with `cursor-gateway key NAME`.",
            param="api_keys",
        )


# --- values as text -------------------------------------------------------------------------------------

_TRUTH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _from_text(kind: Kind, text: str) -> object:
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
            return _items(text)
        case DictType():
            return _pairs(_items(text))


def _items(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]


def _pairs(items: Iterable[str]) -> dict[str, str]:
    pairs = [item.partition("=") for item in items]
    read = {name.strip(): value.strip() for name, mark, value in pairs if mark}
    if len(read) != len(pairs):
        raise ValueError("a pair without `=`, or a name that is given twice")
    return read


def _takes(kind: Kind) -> str:
    match kind:
        case StrType(min_length=least):
            return "text that is not empty" if least else "text"
        case IntType(ge=least, le=most):
            return f"a whole number{_bounds(least, None, most)}"
        case FloatType(ge=least, gt=above, le=most):
            return f"a number{_bounds(least, above, most)}"
        case BoolType():
            return "true or false"
        case LiteralType(values=values):
            return f"one of {', '.join(f'`{value}`' for value in values)}"
        case ListType():
            return "a list of texts"
        case DictType():
            return "a table of texts"


def _takes_text(kind: Kind) -> str:
    match kind:
        case ListType():
            return "texts separated by commas"
        case DictType():
            return "`name=value` pairs separated by commas, each name once"
        case StrType() | IntType() | FloatType() | BoolType() | LiteralType():
            return _takes(kind)


def _bounds(least: float | None, above: float | None, most: float | None) -> str:
    words = {"at least": least, "above": above, "at most": most}
    told = [f"{word} {bound:.0f}" for word, bound in words.items() if bound is not None]
    return f", {' and '.join(told)}"


# --- what must hold before the gateway listens ----------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Of what is not understood: no."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def check_exposed(settings: Settings) -> None:
    """Who can use the gateway can run commands on its machine."""
    if not settings.api_keys and not is_loopback(settings.host):
        raise SettingsError(
            f"the gateway refuses to listen on {settings.host!r} without API keys: whoever reaches it could run "
            "commands on this machine; make one with `cursor-gateway key NAME`, or listen on 127.0.0.1.",
            param="host",
        )
