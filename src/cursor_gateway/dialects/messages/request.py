"""Read the body of Anthropic's Messages request: the conversation, its images, the tools and the options.

Unknown fields are ignored, as clients send new ones all the time; so are the fields of `IGNORED`, which change nothing
here. Almost nothing is refused: Claude Code answers a refusal with five more requests. `cursor` is the gateway's
own; there, an unknown name is an error.
"""

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from cursor_gateway.dialects.actions import ActionDisplay
from cursor_gateway.dialects.invalid import invalid
from cursor_gateway.dialects.messages.conversation import (
    MessageContent,
    MessagesConversation,
    WireMessage,
    read_conversation,
)
from cursor_gateway.dialects.options import NO_EFFECT, NO_SETTING, CursorOptions, one_of, option_hints
from cursor_gateway.model.caller_tools import (
    AutoTool,
    NamedTool,
    NoTool,
    Offer,
    RequiredTool,
    Tool,
    ToolChoice,
    make_tool,
)
from cursor_gateway.model.requests import NonEmpty
from cursor_gateway.prompting.structured import Format, read_format
from cursor_gateway.wire.json_body import read_json
from cursor_gateway.wire.payload import Fields

IGNORED: dict[str, str] = {
    "temperature": NO_SETTING,
    "top_p": NO_SETTING,
    "top_k": NO_SETTING,
    "thinking.budget_tokens": NO_SETTING,
    "output_config.effort": "The names of Cursor's models include the effort: choose it with `model`.",
    "cache_control": "Cursor decides what is cached.",
    "context_management": "Cursor's agent manages its own context.",
    "container": "The agent works in its workspace.",
    "mcp_servers": "Only the agent's own configuration names MCP servers.",
    "service_tier": NO_EFFECT,
    "speed": NO_EFFECT,
    "betas": NO_EFFECT,
    "diagnostics": NO_EFFECT,
    "tools[].type": "Anthropic's own tools are not run here, because the agent has its own.",
    "messages[].content[].type": "Thinking, server tools and blocks of unknown types are skipped.",
}

# Clients that want no limit send the largest that they know: Claude Code 128,000, others 32,000.
_NO_LIMIT = 16_000


class MessagesOptions(CursorOptions, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Gateway options."""

    actions: ActionDisplay | None = None


class MessagesRequest(Struct, frozen=True, kw_only=True):
    model: str
    conversation: MessagesConversation
    stream: bool
    max_tokens: int | None  # None: no limit
    stop: tuple[str, ...]
    thinking: bool
    tool_types: tuple[str, ...]  # of all tools, `custom` for the caller's own
    offer: Offer | None  # None: there are no tools of the caller's
    format: Format | None
    user_id: str
    cursor: MessagesOptions

    @property
    def takes_blocks(self) -> bool:
        """Other than text: some clients fail on those if they asked for neither thinking nor tools."""
        return self.thinking or bool(self.tool_types)


def read_request(body: bytes, max_images: int = 50) -> MessagesRequest:
    """Raises `InvalidRequest`, with the field that is to blame."""
    wire = read_json(body, _Body, _HINTS)
    return MessagesRequest(
        model=wire.model,
        conversation=read_conversation(wire.system, wire.messages, max_images),
        stream=wire.stream or False,
        max_tokens=wire.max_tokens if wire.max_tokens < _NO_LIMIT else None,
        stop=tuple(wire.stop_sequences or ()),
        thinking=_thinks(Fields(wire.thinking)),
        tool_types=tuple(map(_type_of, wire.tools or ())),
        offer=_offer(wire),
        format=_format(wire),
        user_id=Fields(wire.metadata).text("user_id"),
        cursor=wire.cursor or MessagesOptions(),
    )


def countable(body: bytes) -> list[str]:
    """The texts of a request that is only to be counted: it has no limit, and its images count nothing."""
    wire = read_json(body, _Counted, _HINTS)
    given = [msgspec.json.encode(tool).decode() for tool in wire.tools or ()]
    messages = read_conversation(wire.system, wire.messages, len(body)).messages
    calls = [f"{call.name} {call.arguments}" for message in messages for call in getattr(message, "calls", ())]
    return [*(message.text for message in messages), *calls, *given]


# --- the body's shape -------------------------------------------------------------------------------

_Object: TypeAlias = dict[str, Any]


class _Counted(Struct, frozen=True, kw_only=True):
    messages: Annotated[list[WireMessage], Meta(min_length=1)]
    system: MessageContent | None = None
    tools: list[_Object] | None = None


class _Body(_Counted, frozen=True, kw_only=True):
    model: NonEmpty
    max_tokens: Annotated[int, Meta(ge=1)]
    stream: bool | None = None
    stop_sequences: list[NonEmpty] | None = None
    thinking: _Object | None = None
    tool_choice: _Object | None = None
    output_config: _Object | None = None
    output_format: _Object | None = None  # where `output_config.format` was before
    metadata: _Object | None = None
    cursor: MessagesOptions | None = None


_HINTS = {
    "messages[].role": one_of(("user", "assistant", "system")),
    **option_hints(MessagesOptions),
}


# --- reading it -------------------------------------------------------------------------------------


def _thinks(thinking: Fields) -> bool:
    return thinking.text("type") in ("enabled", "adaptive") and thinking.text("display") != "omitted"


def _type_of(tool: _Object) -> str:
    return Fields(tool).text("type") or "custom"


def _offer(wire: _Body) -> Offer | None:
    tools: dict[str, Tool] = {}
    for number, offered in enumerate(wire.tools or ()):
        if _type_of(offered) != "custom":
            continue
        fields, param = Fields(offered), f"tools[{number}]"
        if (name := fields.text("name")) in tools:
            raise invalid(f"{param}.name", "Two tools have this name; rename one.")
        if not isinstance(offered.get("input_schema", {}), dict):
            raise invalid(f"{param}.input_schema", "Send a JSON Schema, which is an object.")
        tools[name] = make_tool(name, fields.text("description"), fields.object("input_schema").all, param)
    asked = Fields(wire.tool_choice)
    if not wire.tools and asked.text("type") in ("any", "tool"):
        raise invalid("tool_choice", "A tool call is required, but `tools` is empty.")
    if not tools:
        return None
    choice = _choice(asked, list(tools), [Fields(tool).text("name") for tool in wire.tools or ()])
    return Offer(tools=tuple(tools.values()), choice=choice, parallel=not asked.flag("disable_parallel_tool_use"))


def _choice(asked: Fields, names: list[str], all_names: list[str]) -> ToolChoice:
    name = asked.text("name")
    match asked.text("type"):
        case "auto" | "":
            return AutoTool()
        case "none":
            return NoTool()
        case "any":
            return RequiredTool()
        case "tool" if name in names:
            return NamedTool(name)
        case "tool" if name not in all_names:
            there = f"there are {', '.join(names)}"
            raise invalid("tool_choice.name", f"{name[:100]!r} is not one of the tools; {there}.")
        case "tool":
            return AutoTool()  # one of Anthropic's own tools
        case _:
            raise invalid("tool_choice.type", one_of(("auto", "any", "tool", "none")))


def _format(wire: _Body) -> Format | None:
    format, param = Fields(wire.output_config).object("format"), "output_config.format"
    if not format.all:
        format, param = Fields(wire.output_format), "output_format"
    if not format.all:
        return None
    if format.text("type") != "json_schema":
        raise invalid(f"{param}.type", "Send json_schema.")
    return read_format(format.object("schema").all, f"{param}.schema", strict=True)
