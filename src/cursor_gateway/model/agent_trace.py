"""Which lines of which files an agent wrote, as a record of Agent Trace 0.1 (https://agent-trace.dev/), whose names and
types these are."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

MEDIA_TYPE = "application/vnd.agent-trace.record+json"
VERSION = "0.1.0"


class TraceVcs(Struct, frozen=True, kw_only=True):
    """The revision of a version control system."""

    type: Annotated[Literal["git"], "The system."]
    revision: Annotated[str, "The commit that is checked out in the workspace."]


class TraceTool(Struct, frozen=True, kw_only=True):
    """The program that made a trace record."""

    name: Annotated[str, "`cursor-gateway`."]
    version: Annotated[str, "Its version."]


class TraceContributor(Struct, frozen=True, kw_only=True):
    """Who wrote lines."""

    type: Annotated[Literal["ai"], "What kind of author: always an agent."]
    model_id: Annotated[
        Annotated[str, Meta(max_length=250)] | UnsetType,
        "`cursor/` and the model of the run, as Cursor names it; omitted if the run is no longer known.",
    ] = UNSET


class TraceRange(Struct, frozen=True, kw_only=True):
    """Consecutive lines."""

    start_line: Annotated[int, Meta(ge=1), "The first line, from 1."]
    end_line: Annotated[int, Meta(ge=1), "The last line."]
    content_hash: Annotated[str, "`sha256:` and the hash of the lines, with line feeds as line ends."]


class TraceResource(Struct, frozen=True, kw_only=True):
    """Something related to lines of code."""

    type: Annotated[str, "`run`: the run that wrote the lines."]
    url: Annotated[str, "Its address at the gateway."]


class TraceConversation(Struct, frozen=True, kw_only=True):
    """The lines of a file that one run wrote."""

    url: Annotated[str, "The conversation's address at the gateway."]
    contributor: Annotated[TraceContributor, "Who wrote the lines."]
    ranges: Annotated[list[TraceRange], "The lines, in order."]
    related: Annotated[list[TraceResource], "The run."]


class TraceFile(Struct, frozen=True, kw_only=True):
    """A file with lines that the agent wrote."""

    path: Annotated[str, "Its path from the top of the repository, or below the workspace if that is in none."]
    conversations: Annotated[list[TraceConversation], "One for each run, in the order of the runs."]


class TraceRecord(Struct, frozen=True, kw_only=True):
    """Which lines an agent wrote in a conversation: a record of Agent Trace."""

    version: Annotated[str, "The version of the specification."]
    id: Annotated[str, Meta(extra_json_schema={"format": "uuid"}), "The same for the same lines."]
    timestamp: Annotated[
        str, Meta(extra_json_schema={"format": "date-time"}), "When the conversation was last used, in UTC."
    ]
    vcs: Annotated[TraceVcs | UnsetType, "Omitted if the workspace is in no git repository with a commit."] = UNSET
    tool: Annotated[TraceTool, "What made the record."]
    files: Annotated[list[TraceFile], "In the order in which they were first changed."]
    metadata: Annotated[
        dict[str, list[str]] | UnsetType, "`cursor_gateway.notes`: why the lines of some runs are not known."
    ] = UNSET
