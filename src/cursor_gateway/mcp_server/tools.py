"""The tools: their arguments, names, descriptions and JSON Schemas."""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from cursor_gateway.dialects.documents.request import PermissionAnswer, QuestionAnswer
from cursor_gateway.model.answers import PlanChoice
from cursor_gateway.schema import json_schema

_RunId: TypeAlias = Annotated[str, Meta(min_length=1, description="The `id` of a result of `ask`, `run` or `answer`.")]
_Background: TypeAlias = Annotated[
    bool, Meta(description="Return at once, while the agent works. For long tasks. Look at it later with `status`.")
]


class _Arguments(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class AskArguments(_Arguments, frozen=True, kw_only=True):
    prompt: Annotated[str, Meta(min_length=1, description="The question or the task, with all that the agent needs.")]
    conversation_id: Annotated[
        str | None, Meta(description="The `conversationId` of an earlier result, to continue that conversation.")
    ] = None
    model: Annotated[str | None, Meta(description="A model of Cursor's. Omit it for the default.")] = None
    workspace: Annotated[str | None, Meta(description="The folder to work in. Omit it for the default.")] = None


class RunArguments(AskArguments, frozen=True, kw_only=True):
    mode: Annotated[
        Literal["agent", "plan", "debug"],
        Meta(description="`agent` does the work, `plan` proposes a plan first, `debug` looks for the cause of a bug."),
    ] = "agent"
    background: _Background = False


class StatusArguments(_Arguments, frozen=True, kw_only=True):
    run_id: _RunId
    wait_seconds: Annotated[
        int, Meta(ge=0, le=3600, description="How long to wait for the run to end or to ask something.")
    ] = 0


class AnswerArguments(_Arguments, frozen=True, kw_only=True):
    run_id: _RunId
    answers: Annotated[
        list[QuestionAnswer] | None, Meta(description="Answers to the questions of a `clarification` document.")
    ] = None
    plan: Annotated[PlanChoice | None, Meta(description="The decision about a `plan` document.")] = None
    text: Annotated[str, Meta(description="With `plan`: what the agent should know about the decision.")] = ""
    permissions: Annotated[
        list[PermissionAnswer] | None,
        Meta(
            description="Decisions about documents with `metadata.permission`. Ask the user before you allow anything."
        ),
    ] = None
    background: _Background = False


class CancelArguments(_Arguments, frozen=True, kw_only=True):
    run_id: _RunId


_WORDS = {
    "summary": {"type": "string", "description": "The state of the run, and what went wrong."},
    "nextStep": {"type": "string", "description": "What the agent needs, and which tool to call with which arguments."},
}

ToolArguments: TypeAlias = AskArguments | RunArguments | StatusArguments | AnswerArguments | CancelArguments


class ToolDescription(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    arguments: type[ToolArguments]
    is_read_only: bool = False
    is_destructive: bool = False


TOOLS = {
    tool.name: tool
    for tool in (
        ToolDescription(
            name="ask",
            title="Ask Cursor's agent",
            description="Ask Cursor's agent a question about the project. It can read files, but changes nothing. "
            "Returns the answer.",
            arguments=AskArguments,
            is_read_only=True,
        ),
        ToolDescription(
            name="run",
            title="Give Cursor's agent a task",
            description="Let Cursor's agent work on a task: it can edit files and run permitted commands. Returns when "
            "it is done, or when it needs an answer; the result then says what to send with `answer`.",
            arguments=RunArguments,
            is_destructive=True,
        ),
        ToolDescription(
            name="status",
            title="Look at a run",
            description="What a run has done so far, and whether it is done, still working, or waiting for an answer.",
            arguments=StatusArguments,
            is_read_only=True,
        ),
        ToolDescription(
            name="answer",
            title="Answer Cursor's agent",
            description="Answer what the agent asks: its questions (`answers`), its plan (`plan`) or its requests for "
            "permission (`permissions`). Send one of them. The agent then continues; returns like `run`.",
            arguments=AnswerArguments,
            is_destructive=True,
        ),
        ToolDescription(
            name="cancel",
            title="Stop a run",
            description="Stop a run. Returns what it has done until then.",
            arguments=CancelArguments,
        ),
    )
}


def read_arguments(tool: ToolDescription, arguments: dict[str, Any]) -> ToolArguments:
    """Raises `msgspec.ValidationError`."""
    return msgspec.convert(arguments, tool.arguments)


def listed_tools() -> list[dict[str, Any]]:
    """As `tools/list` returns them, in a fixed order."""
    schema = output_schema()
    return [
        {
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": input_schema(tool),
            "outputSchema": schema,
            "annotations": {
                "readOnlyHint": tool.is_read_only,
                "destructiveHint": tool.is_destructive,
                "openWorldHint": True,
            },
        }
        for tool in TOOLS.values()
    ]


def input_schema(tool: ToolDescription) -> dict[str, Any]:
    """An object at the root, as MCP wants it."""
    (root,), definitions = msgspec.json.schema_components([tool.arguments], ref_template="#/$defs/{name}")
    schema: dict[str, Any] = definitions.pop(root["$ref"].rpartition("/")[2])
    return {**schema, "$defs": definitions} if definitions else schema


@cache
def output_schema() -> dict[str, Any]:
    """Of every tool: a `ChatResponse` and what to do next, an object at the root. Hosts read it once per tool, so it is
    kept short."""
    definitions: dict[str, Any] = _without_words(json_schema()["$defs"])
    response = definitions["ChatResponse"]
    needed: set[str] = set()
    pending = list(_references(response))
    while pending:
        if (name := pending.pop()) not in needed:
            needed.add(name)
            pending += _references(definitions[name])
    return {
        **response,
        "properties": {**_WORDS, **response["properties"]},
        "required": ["summary", *response["required"]],
        "$defs": {name: definitions[name] for name in definitions if name in needed},
    }


def _without_words(schema: Any) -> Any:
    """Without descriptions and titles, but with the properties of these names."""
    match schema:
        case dict():
            words = [name for name in ("title", "description") if isinstance(schema.get(name), str)]
            return {name: _without_words(below) for name, below in schema.items() if name not in words}
        case list():
            return [_without_words(below) for below in schema]
        case _:
            return schema


def _references(schema: Any) -> Iterator[str]:
    match schema:
        case {"$ref": str(path)}:
            yield path.rpartition("/")[2]
        case dict():
            for below in schema.values():
                yield from _references(below)
        case list():
            for below in schema:
                yield from _references(below)
        case _:
            pass
