"""What the operator decides, as one typed object: each setting with its default and its meaning."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from cursor_gateway.core.documents import Mode
from cursor_gateway.core.fences import Fences
from cursor_gateway.dialects.openai_chat import AgentTools

SourceName: TypeAlias = Literal["auto", "cli", "replay"]
LogFormat: TypeAlias = Literal["auto", "human", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
WhenClientLeaves: TypeAlias = Literal["cancel", "finish"]

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
        Meta(description="What answers: `cli` runs cursor-agent, `replay` plays recordings, `auto` chooses."),
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
    force: Annotated[
        bool, Meta(description="Let the agent run every command without asking (`--force`). Dangerous.")
    ] = False
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
    max_body_bytes: Annotated[int, Meta(ge=1024, description="The largest request.")] = 20 * 1024 * 1024
    max_output_bytes: Annotated[int, Meta(ge=1024, description="The most that the agent may write in one run.")] = (
        256 * 1024 * 1024
    )
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
    models_seconds: Annotated[Seconds, Meta(description="How long the list of models is good for.")] = 600
    max_conversations: Annotated[int, Meta(ge=1, description="Conversations that can be continued; older ones go.")] = (
        200
    )
    # --- what is kept and told
    data_dir: Annotated[str, Meta(description="Where the gateway keeps its files; empty is the platform's place.")] = ""
    record_dir: Annotated[
        str, Meta(description="Write a recording of every run into this folder; empty writes none.")
    ] = ""
    record_prompts: Annotated[bool, Meta(description="Whether recordings hold the prompts.")] = True
    replay_dir: Annotated[
        str, Meta(description="The recordings that `replay` plays; empty plays the built-in demo.")
    ] = ""
    replay_speed: Annotated[
        float, Meta(ge=0, description="How fast recordings are played: 1 as recorded, 2 twice as fast, 0 at once.")
    ] = 1.0
    log_level: Annotated[LogLevel, Meta(description="The least important lines that are logged.")] = "info"
    log_format: Annotated[
        LogFormat, Meta(description="Lines for people or JSON; `auto` looks whether a terminal reads them.")
    ] = "auto"
    # --- the command line as a client
    url: Annotated[
        str, Meta(description="The gateway that `chat` and `models` talk to; empty tries the local one.")
    ] = ""
    api_key: Annotated[str, Meta(description="The key that `chat` and `models` send.")] = ""
