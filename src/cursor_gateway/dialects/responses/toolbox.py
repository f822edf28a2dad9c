"""Turn the tools that a request declares into tools that the agent can call, and its calls back.

Functions and custom tools, alone or in a namespace, become tools with unique names. The response then calls each in
the form in which it was declared. Every other type (web search, file search, MCP servers, shells, …) is accepted and
ignored: the agent has its own.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from cursor_gateway.dialects.requests import invalid
from cursor_gateway.model import caller_tools
from cursor_gateway.model.requests import NonEmpty

_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64  # characters of a name; models know no longer ones
_CALLABLE = ("function", "custom")  # the types of tools that are the client's
_INPUT = "input"  # the only parameter of a custom tool
_CHOICE = 'Send "none", "auto", "required", an object that names one function or custom tool, or allowed_tools.'


class Declared(Struct, frozen=True):
    """How the client knows a tool."""

    kind: Literal["function", "custom"]
    name: str
    namespace: str = ""


class Forms(Struct, frozen=True):
    """The declared tools by the names that the agent calls them."""

    tools: dict[str, Declared] = {}

    def flat_name(self, name: str, namespace: str) -> str:
        """What the agent calls this tool. For one that is no longer declared: what it would be."""
        for flat, declared in self.tools.items():
            if (declared.name, declared.namespace) == (name, namespace):
                return flat
        return _flat(name, namespace)

    def of(self, flat: str) -> Declared:
        return self.tools.get(flat) or Declared("function", flat)


class Toolbox(Struct, frozen=True):
    forms: Forms
    offer: caller_tools.Offer | None  # None: there is nothing to call


# --- as they are declared ---------------------------------------------------------------------------


class _Function(Struct, frozen=True):
    name: NonEmpty
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Grammar(Struct, frozen=True):
    type: str = "text"
    syntax: str = ""
    definition: str = ""
    grammar: "_Grammar | None" = None  # some clients nest it


class _Custom(Struct, frozen=True):
    name: NonEmpty
    description: str | None = None
    format: _Grammar | None = None


class _Namespace(Struct, frozen=True):
    name: NonEmpty
    description: str | None = None
    tools: list[dict[str, Any]] = []


class _Found(Struct, frozen=True):
    declared: Declared
    tool: _Function
    param: str


def read_tools(wire: Sequence[tuple[str, dict[str, Any]]], choice: Any = None, *, parallel: bool = True) -> Toolbox:
    """Each tool with its path in the request. Raises `InvalidRequest`."""
    tools: dict[str, caller_tools.Tool] = {}
    forms: dict[str, Declared] = {}
    seen: set[tuple[str, str]] = set()
    for found in _found(wire):
        if (found.declared.name, found.declared.namespace) in seen:
            continue  # declared again, in a later item
        seen.add((found.declared.name, found.declared.namespace))
        flat = _unique(_flat(found.declared.name, found.declared.namespace), forms)
        forms[flat] = found.declared
        tools[flat] = caller_tools.make_tool(
            flat, found.tool.description, found.tool.parameters, found.param, strict=found.tool.strict or False
        )
    known = Forms(forms)
    chosen, usable = _choose(choice, known, is_empty=not wire)
    offered = tuple(tool for name, tool in tools.items() if name in usable)
    return Toolbox(known, caller_tools.Offer(tools=offered, choice=chosen, parallel=parallel) if offered else None)


def _found(wire: Sequence[tuple[str, dict[str, Any]]], namespace: str = "", about: str = "") -> Iterator[_Found]:
    for param, tool in wire:
        match tool.get("type", "function"):
            case "function":
                function = _convert(tool, _Function, param)
                yield _Found(Declared("function", function.name, namespace), _described(function, about), param)
            case "custom":
                custom = _convert(tool, _Custom, param)
                yield _Found(Declared("custom", custom.name, namespace), _described(_as_function(custom), about), param)
            case "namespace" if not namespace:
                space = _convert(tool, _Namespace, param)
                inner = [(f"{param}.tools[{number}]", member) for number, member in enumerate(space.tools)]
                yield from _found(inner, space.name, space.description or "")
            case _:
                pass


def _described(function: _Function, about: str) -> _Function:
    if not about:
        return function
    return msgspec.structs.replace(function, description="\n\n".join(filter(None, (about, function.description))))


def _as_function(custom: _Custom) -> _Function:
    """A custom tool takes free text."""
    text: dict[str, Any] = {"type": "string", "description": "The tool's input: plain text, not JSON."}
    lines = [custom.description or ""]
    grammar = (custom.format.grammar or custom.format) if custom.format is not None else None
    if grammar is not None and grammar.definition:
        lines.append(f"`{_INPUT}` must match this {grammar.syntax or 'text'} grammar:\n\n{grammar.definition}")
    schema = {"type": "object", "properties": {_INPUT: text}, "required": [_INPUT], "additionalProperties": False}
    return _Function(custom.name, "\n\n".join(filter(None, lines)), schema)


def _convert(tool: dict[str, Any], shape: Any, param: str) -> Any:
    # Chat's form, `{"type": "function", "function": {…}}`, is a common mistake, and its meaning is clear.
    value = tool["function"] if isinstance(tool.get("function"), dict) and "name" not in tool else tool
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise invalid(param, f"{str(error).replace(' - at `$', ' at `')}.") from None


# --- names ------------------------------------------------------------------------------------------


def _flat(name: str, namespace: str) -> str:
    full = f"{namespace}__{name}" if namespace else name
    plain = _UNUSUAL.sub("_", full) or "_"
    if len(plain) <= _LONGEST:
        return plain
    return f"{plain[: _LONGEST - 9]}_{hashlib.sha256(full.encode()).hexdigest()[:8]}"


def _unique(name: str, taken: dict[str, Declared]) -> str:
    number, unique = 2, name
    while unique in taken:
        unique = f"{name[: _LONGEST - 4]}_{number}"
        number += 1
    return unique


def input_of(arguments: dict[str, Any]) -> str:
    """The text that a custom tool is called with."""
    text = arguments.get(_INPUT)
    return text if isinstance(text, str) else msgspec.json.encode(arguments).decode()


def arguments_of(input: str) -> str:
    """The JSON of a custom tool's call, as the agent made it."""
    return msgspec.json.encode({_INPUT: input}).decode()


# --- the choice -------------------------------------------------------------------------------------


class _Named(Struct, frozen=True):
    type: str
    name: str = ""
    namespace: str = ""


class _Allowed(Struct, frozen=True):
    mode: Literal["auto", "required"] = "auto"
    tools: list[_Named] = []


_C = TypeVar("_C", _Named, _Allowed)


def _choose(choice: Any, forms: Forms, *, is_empty: bool) -> tuple[caller_tools.ToolChoice, set[str]]:
    """What must be called, and what may be."""
    everything = set(forms.tools)
    match choice:
        case None | "auto":
            return caller_tools.AutoTool(), everything
        case "none":
            return caller_tools.NoTool(), everything
        case "required":
            if is_empty:
                raise invalid("tool_choice", "A tool call is required, but `tools` is empty.")
            return caller_tools.RequiredTool(), everything
        case {"type": "allowed_tools"}:
            allowed = _convert_choice(choice, _Allowed)
            names = {_chosen(tool, forms) for tool in allowed.tools if tool.type in _CALLABLE}
            return caller_tools.RequiredTool() if allowed.mode == "required" else caller_tools.AutoTool(), names
        case {"type": "function" | "custom"}:
            return caller_tools.NamedTool(_chosen(_convert_choice(choice, _Named), forms)), everything
        case {"type": str()}:
            return caller_tools.AutoTool(), everything  # a tool that the agent has itself
        case _:
            raise invalid("tool_choice", _CHOICE)


def _convert_choice(choice: Any, shape: type[_C]) -> _C:
    try:
        return msgspec.convert(choice, shape)
    except msgspec.ValidationError:
        raise invalid("tool_choice", _CHOICE) from None


def _chosen(named: _Named, forms: Forms) -> str:
    for flat, declared in forms.tools.items():
        if declared.name == named.name and named.namespace in ("", declared.namespace):
            return flat
    there = f"there are {', '.join(forms.tools)}" if forms.tools else "there are none"
    raise invalid("tool_choice", f"{named.name[:100]!r} is not one of the tools; {there}.")
