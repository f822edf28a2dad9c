"""The changes of a conversation's files as the API takes and returns them: lists, reverts, commits, traces."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from cursor_gateway.model.documents import Diff

_Path: TypeAlias = Annotated[str, Meta(max_length=4096)]
_Numbers: TypeAlias = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1, max_length=100_000)]


class LineRange(Struct, frozen=True, rename="camel"):
    """Lines that were replaced by others. Lines are numbered from 1."""

    old_start: Annotated[int, "The first line in the earlier version."]
    old_lines: Annotated[int, "How many lines of the earlier version were removed."]
    new_start: Annotated[int, "The first line in the later version."]
    new_lines: Annotated[int, "How many lines of the later version were added."]


class FileChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes to a file."""

    path: Annotated[str, "Its path below the workspace, or as the agent named it."]
    operation: Annotated[str, "`create`, `edit`, `delete` or `rename`."]
    language: Annotated[str, "The language of its code."]
    diffs: Annotated[list[Diff], "Its changes, in the order of its lines."]
    can_revert: Annotated[bool, "True if the file is as the agent left it, and its earlier content is known."] = False
    hunks: Annotated[list[LineRange], "The lines of each of `diffs`, if the gateway read the file."] = []
    added: Annotated[int | UnsetType, "How many lines were added."] = UNSET
    removed: Annotated[int | UnsetType, "How many lines were removed."] = UNSET
    version: Annotated[str | UnsetType, "Send this with the numbers of hunks to revert or keep them."] = UNSET
    is_kept: Annotated[bool, "True if all its changes were kept."] = False
    is_edit: Annotated[bool, "False if no edit of the agent names the file: a command or a person changed it."] = True
    note: Annotated[str, "What is not known of its changes, for people."] = ""


class ConversationChanges(Struct, frozen=True):
    """The files that changed in a conversation."""

    files: Annotated[list[FileChange], "In the order in which they were first changed."]
    notes: Annotated[list[str], "Why the changes of some turns are not known exactly."] = []
    workspace: Annotated[str, "The conversation's folder."] = ""
    undo: Annotated[str | UnsetType, "The last revert, if nothing happened since: it can be undone."] = UNSET


class RevertRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What to revert: a file, hunks of it, a turn, everything since a turn, or an earlier revert."""

    path: Annotated[_Path | None, "The file, as in the list of changes."] = None
    chat_id: Annotated[str | None, "The run whose changes are reverted. Without it, those of all runs."] = None
    hunks: Annotated[_Numbers | None, "The changes of the file to revert, by number from 0."] = None
    version: Annotated[str | None, "The file's `version` in the list; required with `hunks`."] = None
    before: Annotated[str | None, "A run: restore all files as they were before it, and before all later runs."] = None
    undo: Annotated[str | None, "An earlier revert, by its `undo`, to be undone."] = None
    preview: Annotated[bool, "Only say what would change."] = False
    token: Annotated[
        str | None, "That of a preview. Then files that were changed by others are reverted as it showed them."
    ] = None


class KeepRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Changes that were reviewed: they are no longer listed, and reverting the file does not revert them."""

    path: Annotated[_Path | None, "The file. Without it, all files."] = None
    hunks: Annotated[_Numbers | None, "The changes of the file to keep, by number from 0."] = None
    version: Annotated[str | None, "The file's `version` in the list; required with `hunks`."] = None


class CommitRequest(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A commit of the files that changed in the conversation."""

    message: Annotated[
        Annotated[str, Meta(min_length=1, max_length=10_000)] | None,
        "The message. Without it, nothing is committed, and a message is proposed.",
    ] = None
    paths: Annotated[list[_Path] | None, "Only these files."] = None
    token: Annotated[
        str | None, "That of the proposal, required with `message`: the files must be as it listed them."
    ] = None


class ListRequest(Struct, frozen=True):
    chat_id: str | None = None


class PatchRequest(Struct, frozen=True):
    chat_id: str | None = None
    path: str | None = None
    context: int = 3
    only_open: bool = False  # without what was kept


class TraceRequest(Struct, frozen=True):
    """Which run wrote which lines."""


ReviewRequest: TypeAlias = ListRequest | PatchRequest | TraceRequest | RevertRequest | KeepRequest | CommitRequest


class RevertedFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """A file that was reverted, or would be."""

    path: Annotated[str, "Its path."]
    action: Annotated[
        Literal["restored", "deleted", "skipped"],
        "`restored`, `deleted` if it did not exist before, or `skipped` if that is not possible.",
    ]
    added: Annotated[int | UnsetType, "How many lines are added."] = UNSET
    removed: Annotated[int | UnsetType, "How many lines are removed."] = UNSET
    is_changed_since: Annotated[
        bool | UnsetType, "True if somebody else changed the file after the agent; that is lost."
    ] = UNSET
    reason: Annotated[str | UnsetType, "Why it is skipped."] = UNSET


class RevertedFiles(Struct, frozen=True, kw_only=True, rename="camel"):
    """The files that were reverted, or would be."""

    files: Annotated[list[RevertedFile], "In the order in which they were first changed."]
    undo: Annotated[str | UnsetType, "Send this to undo it."] = UNSET
    token: Annotated[str | UnsetType, "Of a preview: send this to do exactly what it shows."] = UNSET
    patch: Annotated[str | UnsetType, "Of a preview: what would change, as a patch."] = UNSET


class ListedChanges(Struct, frozen=True):
    files: list[FileChange]
    known_runs: dict[str, list[str]] = {}  # whose changes were recorded, and edited files that were not read
    problems: dict[str, str] = {}  # by run: why its changes were not
    undo: str = ""  # the last revert, if nothing happened since


class KeptFiles(Struct, frozen=True):
    """The files whose changes were kept."""

    files: Annotated[list[str], "Their paths."]


class Patch(Struct, frozen=True):
    data: bytes


class WrittenLines(Struct, frozen=True):
    """Consecutive lines that a run wrote."""

    chat_id: str
    start: int  # from 1
    end: int  # the last one
    hash: str  # SHA-256 of them, with line feeds as line ends


class WrittenFile(Struct, frozen=True):
    path: str
    lines: list[WrittenLines]


class LineTrace(Struct, frozen=True, kw_only=True):
    files: list[WrittenFile]  # with paths from the top of the repository, if there is one
    revision: str = ""  # the commit that is checked out; empty: there is none
    notes: list[str] = []  # why some lines are not known


class CommitResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A commit, or the proposal of one."""

    message: Annotated[str, "Its message."]
    files: Annotated[list[str], "The files in it."]
    commit: Annotated[str | UnsetType, "Its hash; absent from a proposal."] = UNSET
    token: Annotated[str | UnsetType, "Of a proposal: send this with the message to commit."] = UNSET
    branch: Annotated[str | UnsetType, "The branch."] = UNSET


ReviewResult: TypeAlias = ListedChanges | Patch | LineTrace | RevertedFiles | KeptFiles | CommitResult

# Each request with its result, under the name that the processes of a cluster use.
REVIEWS: dict[str, tuple[type[ReviewRequest], type[ReviewResult]]] = {
    "list": (ListRequest, ListedChanges),
    "patch": (PatchRequest, Patch),
    "trace": (TraceRequest, LineTrace),
    "revert": (RevertRequest, RevertedFiles),
    "keep": (KeepRequest, KeptFiles),
    "commit": (CommitRequest, CommitResult),
}


# --- which lines an agent wrote, as a record of Agent Trace ---------------------------------------
# Version 0.1 (https://agent-trace.dev/), whose names and types these are.


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
