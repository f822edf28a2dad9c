"""Translate a tool call from ACP into the name, arguments and result that `sources.cursor.tools` reads.

ACP has little information: a title, a kind, and input and output that differ between tools and builds. Some calls start
without arguments, which follow in an update, together with another title (2026.10.01).
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.model.agent_events import Action, FileEdit, OtherTool, Outcome
from cursor_gateway.sources.cursor import permissions
from cursor_gateway.sources.cursor.tools import CODES, read_call, read_result
from cursor_gateway.wire.payload import Fields

_MCP_TITLE = re.compile(r"(\S+)-(\S+): \2")
_QUOTED = re.compile(r"`(.+)`", re.DOTALL)
_COMMAND_TITLE = re.compile(r"`(.+)`", re.DOTALL)  # all of it: rules judge the command
_PATH_IN_TITLE = re.compile(r"[\w -]*`([^`]+)`")
_URL_IN_TITLE = re.compile(r"(?:web )?fetch(?:ing|ed)?:? `?(https?://[^\s`]+)`?", re.IGNORECASE)
_TERM_IN_TITLE = re.compile(
    r"(?:web ?search|search(?:ing|ed)? (?:the )?web)(?::| for) ?[`\"]?(.+?)[`\"]?", re.IGNORECASE
)
_READ_FILE = re.compile(r"read ", re.IGNORECASE)
_LINES_IN_TITLE = re.compile(r".* \(([0-9]{1,9}) - ([0-9]{1,9})\)", re.DOTALL)
_PATTERN_IN_TITLE = re.compile(r'grep "(.+)"', re.IGNORECASE | re.DOTALL)
_OLD_HEADER = re.compile(r"-- (?:(/dev/null)|a/(.*))\r?")
_NEW_HEADER = re.compile(r"\+\+ (?:(/dev/null)|b/(.*))\r?")
_MADE_UP_ID = re.compile(r"web_(fetch|search)_[\w-]+")  # in requests for permission that come before their call
_BY_KIND = {
    "execute": "shell",
    "edit": "edit",
    "delete": "delete",
    "move": "rename",
    "read": "read",
    "fetch": "webFetch",
    "switch_mode": "switchMode",
}
# The beginnings of titles, for kinds that several tools share.
_TITLES = {
    tool: re.compile(rf"(?:{title})(?![\w./-])", re.IGNORECASE)
    for tool, title in {
        "task": "task",
        "updateTodos": r"(?:update|write) to-?dos?",
        "readTodos": r"read to-?dos?",
        "createPlan": "create plan",
        "askQuestion": "ask questions?",
        "generateImage": "generate image",
        "switchMode": "switch mode",
        "webSearch": r"web ?search|search(?:ing|ed)? (?:the )?web",
        "webFetch": r"(?:web ?)?fetch",
        "semSearch": r"(?:codebase|semantic) search",
        "readLints": r"(?:read )?(?:lint|diagnostic)s?",
        "grep": "grep",
        "glob": "find|glob",
        "ls": r"ls|list(?: (?:dir|director|files)\w*)?",
        "delete": "delete",
    }.items()
}
_AFTER_A_NAME = re.compile(
    r"\Z|:| *[`\"(]| for | https?://"
)  # otherwise it may be part of a longer name: "List issues"
_SHARED_KINDS = {
    "search": ("webSearch", "webFetch", "semSearch", "grep", "glob", "ls"),
    "read": ("webFetch", "readTodos", "readLints", "ls"),
    "edit": ("delete",),
    "other": tuple(_TITLES),
    "": tuple(_TITLES),
}
_BY_ARGUMENT = {"globPattern": "glob", "pattern": "grep", "searchTerm": "webSearch", "url": "webFetch"}
_MCP_TOOLS = frozenset({"mcp", "mcpToolCall", "mcp_tool_call", "callMcpTool", "call_mcp_tool"})
_MCP_NAMES = frozenset({"providerIdentifier", "serverIdentifier", "server", "toolName", "name"})
_LAST_LINE = 10**9  # of any file
_OUTCOMES = ("success", "error", *CODES)
_TEXT_FIELDS = {"shell": "stdout", "webFetch": "markdown"}  # where a tool's text is read
REJECTED: dict[str, Any] = {"rejected": {"reason": "The agent's configuration, a hook or its mode did not allow it."}}


class AcpCall(Struct):
    """A call so far: updates contain only changes."""

    id: str
    tool: str = ""  # Cursor's name without its suffix; empty: unknown
    first_title: str = ""  # names the tool; later ones describe the call
    title: str = ""
    kind: str = ""
    status: str = ""  # as last reported
    args: dict[str, Any] = {}
    output: Any = None
    content: list[Any] = []
    places: list[tuple[str, int | None]] = []  # the files that it names, and a line in each
    payload: dict[str, Any] = {}  # as it was first reported
    parent: str | None = None  # the call of the sub-agent that made it
    is_announced: bool = True  # otherwise only a request for permission has named it
    is_denied: bool = False  # the gateway refused permission
    is_reported: bool = False  # its start was an event
    started_ms: float | None = None

    @property
    def server(self) -> str:
        """The server of an MCP tool; empty for other tools."""
        return Fields(self.args).text("providerIdentifier") if self.tool == "mcp" else ""

    @property
    def has_own_message(self) -> bool:
        """Todos, plans and questions have their own messages, with more detail."""
        return self.tool in ("updateTodos", "createPlan", "askQuestion")


def call_of(update: Fields) -> AcpCall:
    call = AcpCall(update.text("toolCallId"), first_title=update.text("title"), payload=update.all)
    learn(call, update)
    return call


def asked_call(requested: Fields) -> Fields:
    """The call that a request for permission is about. Its content is the reason, except for diffs."""
    diffs = [part for part in requested.objects("content") if part.text("type") == "diff"]
    places = [*requested.items("locations"), *({"path": diff.text("path")} for diff in diffs)]
    return Fields({name: value for name, value in requested.all.items() if name != "content"} | {"locations": places})


def has_made_up_id(call: AcpCall) -> bool:
    return _MADE_UP_ID.fullmatch(call.id) is not None


def learn(call: AcpCall, update: Fields) -> None:
    """Adds what an update contains. What comes later wins, unless it is empty."""
    call.title = update.text("title") or call.title
    call.kind = call.kind or update.text("kind")
    call.status = update.text("status") or call.status
    call.content = update.items("content") or call.content
    places = [(place.text("path"), place.integer("line")) for place in update.objects("locations")]
    call.places = list(dict.fromkeys([*call.places, *(place for place in places if place[0])]))
    if update.all.get("rawOutput") is not None:
        call.output = update.all["rawOutput"]
    given = update.object("rawInput")
    if not call.tool or (not call.is_reported and given.text("_toolName")):
        call.tool = _tool(call, given) or _by_output(call.output)
    more = {name: value for name, value in given.all.items() if name != "_toolName"}
    if call.tool == "mcp":
        more = _mcp_args(call, Fields(more))
    call.args = call.args | {name: value for name, value in more.items() if value or name not in call.args}
    _add_what_titles_say(call)


def merge(call: AcpCall, other: AcpCall) -> None:
    """Adds what another report of the same call contains."""
    call.first_title = other.first_title
    reported = {"title": other.title, "status": other.status, "content": other.content, "rawOutput": other.output}
    learn(call, Fields({**reported, "rawInput": other.args}))
    call.started_ms, call.is_announced = other.started_ms, True


def _mcp_args(call: AcpCall, given: Fields) -> dict[str, Any]:
    """The server, the tool and its arguments, which are in a field of their own or beside the names."""
    is_named = given.text("providerIdentifier", "serverIdentifier", "toolName") or given.all.keys() == {"name", "args"}
    names = _MCP_NAMES if is_named else frozenset[str]()
    args = next((given.object(name).all for name in ("args", "arguments") if is_named and name in given.all), None)
    if args is None:
        args = {name: value for name, value in given.all.items() if name not in names}
    found = _MCP_TITLE.fullmatch(call.first_title)
    named = {"providerIdentifier": found[1], "toolName": found[2]} if found else {}
    if server := given.text("providerIdentifier", "serverIdentifier", "server") if is_named else "":
        named["providerIdentifier"] = server
    if tool := given.text("toolName", "name") if is_named else "":
        named["toolName"] = tool
    return {**call.args, **named, "args": {**Fields(call.args).object("args").all, **args}}


def _add_what_titles_say(call: AcpCall) -> None:
    subject = found[1] if (found := _QUOTED.search(call.title)) else ""
    match call.tool:
        case "shell" if (found := _COMMAND_TITLE.fullmatch(call.title)) and not call.args.get("command"):
            call.args["command"] = found[1]
        case "webFetch" if (found := _URL_IN_TITLE.fullmatch(call.title)) and not call.args.get("url"):
            call.args["url"] = found[1]
        case "webSearch" if not call.args.get("searchTerm"):
            term = found[1] if (found := _TERM_IN_TITLE.fullmatch(call.title)) else subject
            call.args |= {"searchTerm": term} if term else {}
        case "glob" if subject and not (call.args.get("globPattern") or call.args.get("pattern")):
            call.args["globPattern"] = subject
        case "grep" if (found := _PATTERN_IN_TITLE.match(call.title)) and not call.args.get("pattern"):
            call.args["pattern"] = found[1]
        case "read" if (lines := _LINES_IN_TITLE.fullmatch(call.title)) and "offset" not in call.args:
            first, last = int(lines[1]), int(lines[2])
            call.args |= {"offset": first, "limit": last - first + 1} if last >= first else {}
    match call.tool:
        case "read" | "edit" | "write" | "delete" if not call.args.get("path"):
            titled = _PATH_IN_TITLE.fullmatch(call.title)
            path = next((path for path, _ in call.places), "") or (titled[1] if titled else "")
            call.args |= {"path": path} if path else {}


def _tool(call: AcpCall, given: Fields) -> str:
    title, kind = call.first_title, call.kind
    if given.text("providerIdentifier", "serverIdentifier"):
        return "mcp"
    if named := given.text("_toolName"):
        if named in _MCP_TOOLS:
            return "mcp"
        words = named.removesuffix("ToolCall").removesuffix("_tool_call").split("_")
        return words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])
    if kind in ("other", "") and _MCP_TITLE.fullmatch(title):
        return "mcp"
    if found := _MADE_UP_ID.fullmatch(call.id):
        return f"web{found[1].capitalize()}"
    if kind == "read" and _READ_FILE.match(title) and (given.text("path") or call.places):  # perhaps one named TODO
        return "read"
    for tool in _SHARED_KINDS.get(kind, ()):
        found = _TITLES[tool].match(title)
        if found and (kind not in ("other", "") or _AFTER_A_NAME.match(title, found.end())):
            return tool
    by_argument = (tool for name, tool in _BY_ARGUMENT.items() if name in given.all and kind == "search")
    return _BY_KIND.get(kind) or next(by_argument, "")


def _by_output(output: object) -> str:
    return "shell" if {"exitCode", "stdout"} <= Fields(output).all.keys() else ""


def started(call: AcpCall) -> Action:
    if not call.tool:
        return OtherTool(tool=_plain(call), arguments=call.args)
    return read_call(call.tool, call.args)


def ended(call: AcpCall, status: str = "completed") -> tuple[Action, Outcome]:
    if call.is_denied:
        return _read(call, REJECTED)
    text = call.output if isinstance(call.output, str) else _text(call)
    output = Fields(call.output)
    if isinstance(call.output, dict) and (failure := _failure(call.tool, output)):
        return _read(call, failure)
    if status == "failed":
        error = output.text("message") or output.object("error").text("message") or text or "The tool failed."
        return _read(call, {"error": {"error": error}})
    if (files := _changed_files(call)) and not any(isinstance(output.all.get(name), dict) for name in CODES):
        return _edited(files[0], call)
    match call.output:
        case dict() if any(isinstance(output.all.get(name), dict) for name in _OUTCOMES):
            return _read(call, output.all)
        case dict() if call.tool == "shell" and not output.maybe_text("stdout", "stderr"):
            return _read(call, {"success": {**output.all, "stdout": output.text("output", "content") or text}})
        case dict() if output.all:
            return _read(call, {"success": output.all})
        case _ if (parts := _parts(call)) and any(part.text("type") != "text" for part in parts):
            return _read(call, {"success": {"content": [part.all for part in parts]}})  # images, for instance
        case _ if text:
            return _read(call, {"success": {_TEXT_FIELDS.get(call.tool, "content"): text}})
        case None if not call.content and not call.has_own_message:
            return _read(call, REJECTED)
        case other:
            return _read(call, {"success": {"content": other} if other else {}})


def also_changed(call: AcpCall) -> list[tuple[Action, Outcome]]:
    """The other files of a call that has changed several."""
    return [_edited(diffs, call) for diffs in _changed_files(call)[1:]]


def denied(call: AcpCall, reason: str) -> tuple[Action, Outcome]:
    """A call that the gateway did not allow."""
    return _read(call, {"rejected": {"reason": reason}})


def _failure(tool: str, output: Fields) -> dict[str, Any]:
    """A failure among the fields of an output; empty: there is none."""
    if error := output.text("error", "errorMessage"):
        return {"error": {"error": error}}
    code = output.integer("exitCode")
    if tool == "shell" and (code not in (None, 0) or (code is None and output.text("signal"))):
        return {"failure": output.all}
    return {}


def _read(call: AcpCall, result: dict[str, Any]) -> tuple[Action, Outcome]:
    if call.tool:
        return read_result(call.tool, call.args, result)
    action, outcome = read_result(_plain(call), {}, result)
    data = action.data if isinstance(action, OtherTool) else None
    return OtherTool(tool=_plain(call), arguments=call.args, data=data), outcome


def _plain(call: AcpCall) -> str:
    """A name for an unknown tool."""
    words = re.findall(r"[a-z0-9]+", _QUOTED.sub("", call.first_title).casefold())
    return "_".join(words[:4]) or call.kind or "tool"


def _changed_files(call: AcpCall) -> list[list[Fields]]:
    """The diffs of each file, that of the call first: an edit in several places of a file has several."""
    if call.tool not in ("edit", "write", "delete", ""):
        return []
    files: dict[str, list[Fields]] = {}
    for part in map(Fields, call.content):
        if part.text("type") == "diff":
            files.setdefault(part.text("path"), []).append(part)
    named = Fields(call.args).text("path")
    return [files[path] for path in sorted(files, key=lambda path: path != named)]


def _edited(diffs: list[Fields], call: AcpCall) -> tuple[Action, Outcome]:
    """The texts are whole files, or lines of a patch without their first characters, which include its header."""
    path = diffs[0].text("path") or Fields(call.args).text("path")
    sides = [_without_headers(diff.text("oldText"), diff.text("newText"), path) for diff in diffs]
    olds, news = [side for side, _ in sides], [side for _, side in sides]
    (old_header, old), (new_header, new) = olds[0], news[-1]
    is_gone = diffs[-1].all.get("newText") is None and diffs[-1].maybe_text("oldText") is not None
    if new_header == "/dev/null" or is_gone or (call.tool == "delete" and not new):
        return read_result("delete", {"path": path}, {"success": {"path": path}})
    is_whole = all(before == after for (_, before), (_, after) in zip(news, olds[1:], strict=False))
    if is_whole and (old_header == "/dev/null" or (old_header is None and diffs[0].all.get("oldText") is None)):
        written = Fields(call.args).text("streamContent", "fileText")  # with the last line end, if any
        created = {"afterFullFileContent": written if written.removesuffix("\n") == new else new, "path": path}
        return read_result("edit", {"path": path}, {"success": created})
    is_whole = is_whole and old_header is None and new_header is None
    if is_whole:
        changed = {"beforeFullFileContent": old, "afterFullFileContent": new, "path": path}
        action, outcome = read_result("edit", {"path": path}, {"success": changed})
    else:
        edits = [{"oldText": before, "newText": after} for (_, before), (_, after) in zip(olds, news, strict=True)]
        args = {"path": path, "multiStrReplace": {"edits": edits}}
        action, outcome = read_result("edit", args, {"success": {"path": path}})
    line = next((line for place, line in call.places if place == path and line), 1)
    if not is_whole or line > old.count("\n") + 1:  # the text is a part of the file
        assert isinstance(action, FileEdit)
        assert action.diff is not None
        before = min(line, _LAST_LINE) - 1
        start, end = action.diff.start_line + before, action.diff.end_line + before
        action = replace(action, diff=replace(action.diff, start_line=start, end_line=end))
    return action, outcome


def _without_headers(old: str, new: str, path: str) -> tuple[tuple[str | None, str], tuple[str | None, str]]:
    """Both texts, and the names of the file in their headers. A patch has both."""
    sides = _without_header(_OLD_HEADER, old, path), _without_header(_NEW_HEADER, new, path)
    return ((None, old), (None, new)) if None in (sides[0][0], sides[1][0]) else sides


def _without_header(header: re.Pattern[str], text: str, path: str) -> tuple[str | None, str]:
    """A first line that names another file is a line of the text: `-- a/b` is a comment in Lua."""
    first, _, rest = text.partition("\n")
    found = header.fullmatch(first)
    if found is None or (found[2] is not None and _name(found[2]) != _name(path)):
        return None, text
    return found[1] or found[2], rest


def _name(path: str) -> str:
    return re.split(r"[\\/]", path.strip())[-1]


def _parts(call: AcpCall) -> list[Fields]:
    return [part for whole in map(Fields, call.content) if (part := whole.object("content")).all]


def _text(call: AcpCall) -> str:
    return "\n".join(text for part in _parts(call) if (text := part.text("text")))


# --- Permission ------------------------------------------------------------------------------------


def is_allowed(call: AcpCall, rules: Sequence[str], workspace: str) -> bool:
    args = Fields(call.args)
    match call.tool:
        case "shell":
            return permissions.is_allowed_command(args.text("command"), rules)
        case "edit" | "write" | "delete":
            paths = [args.text("path"), *(path for path, _ in call.places)]
            return all(permissions.is_allowed_path("Write", path, rules, workspace) for path in paths)
        case "read" | "ls" | "grep" | "glob":
            paths = [args.text("path", "targetDirectory") or workspace, *(path for path, _ in call.places)]
            return all(permissions.is_allowed_path("Read", path, rules, workspace) for path in paths)
        case "mcp":
            return permissions.is_allowed_tool(call.server, args.text("toolName"), rules)
        case "webFetch":
            return permissions.is_allowed_page(args.text("url"), rules)
        case _:
            return False


def option_for(options: Sequence[object], allow: bool) -> dict[str, Any]:
    """The answer to `session/request_permission`. Never "always", which would be saved in a configuration."""
    kind = "allow_once" if allow else "reject_once"
    for option in map(Fields, options):
        if option.text("kind") == kind and (id := option.text("optionId")):
            return {"outcome": {"outcome": "selected", "optionId": id}}
    return {"outcome": {"outcome": "cancelled"}}
