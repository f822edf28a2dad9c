"""A request for one of the agent's own tools in; the call of the caller's tool that does the same out, or none.

In a run with the caller's tools the agent's own are denied, and it asks for them all the same. Clients name alike
things differently, so a request is first told in meanings (`_requests`): the caller's tool is then found by its name
(`_TOOLS`), and each meaning's property in the schema that was really offered (`_PROPERTIES`). What a property can hold
is asked of the schema itself, so references and unions need no rules here. No call is better than an invalid one.
"""

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.actions import Action, Command, FileEdit, OtherTool, Plan, Question, TodoUpdate
from cursor_gateway.model.caller_tools import Tool
from cursor_gateway.model.documents import Diff
from cursor_gateway.prompting.structured import Uncheckable, check_schema, violation
from cursor_gateway.wire.payload import Fields

_LONGEST_DESCRIPTION = 60


def _plain(name: str) -> str:
    """The same for `file_path`, `file-path`, `filePath` and `FilePath`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _names(names: str) -> tuple[str, ...]:
    return tuple(_plain(name) for name in names.split())


# What clients name their tools, best first. After a slash: a property without which the name means something else.
_TOOLS: dict[str, list[str]] = {
    "shell": [
        *("bash", "shell", "run_shell_command", "execute_command", "run_terminal_command", "run_terminal_cmd"),
        *("exec_command", "shell_command", "local_shell", "run_in_terminal", "run_command", "run_commands", "terminal"),
        *("execute_bash", "run_bash", "run_bash_command", "execute_shell_command", "shell_exec", "exec"),
        *("developer__shell", "container.exec"),
    ],
    "read": [
        *("read", "read_file", "view", "view_file", "read_text_file", "file_read", "fs_read", "cat"),
        *("read_files", "read_many_files"),
    ],
    "list": ["list", "ls", "list_dir", "list_directory", "list_files", "list_folder", "list_directory_contents"],
    "grep": [
        *("grep", "grep_search", "search_file_content", "search_files/regex", "grep_files", "ripgrep", "rg"),
        *("search_text", "text_search", "search_content", "search_in_files", "find_in_files", "search_file_contents"),
        *("search_for_pattern", "search_codebase/queries"),
    ],
    "glob": [
        *("glob", "glob_file_search", "file_glob_search", "find_files", "file_search", "find_path", "find"),
        *("glob_files", "glob_search", "find_by_name", "search_files/pattern"),
    ],
    "edit": [
        *("edit", "edit_file", "str_replace", "search_replace", "replace", "replace_string_in_file", "string_replace"),
        *("single_find_and_replace", "search_and_replace", "replace_in_file"),
    ],
    "write": ["write", "write_file", "write_to_file", "create_file", "create_new_file", "create", "file_write"],
    "delete": ["delete", "delete_file", "remove_file", "file_delete", "rm"],
}

# What the properties of each meaning are named, best first.
_PROPERTIES: dict[str, tuple[str, ...]] = {
    "command": _names("command cmd script command_line shell_command bash_command commands"),
    "program": _names("command cmd program executable"),
    "arguments": _names("args arguments argv"),
    "cwd": _names("cwd workdir working_directory working_dir work_dir directory dir dir_path folder cd"),
    "file": _names(
        "file_path path target_file absolute_path file filename file_name relative_path relative_workspace_path"
        " absolute_file_path paths file_paths files"
    ),
    "folder": _names(
        "path directory dir_path directory_path dir target_directory folder folder_path relative_workspace_path"
        " absolute_path search_path search_directory root cwd paths directories"
    ),
    "regex": _names("regex regexp pattern query search search_pattern search_term substring_pattern queries patterns"),
    "is_regex": _names("is_regexp is_regex use_regex regex regexp"),
    "include": _names("include glob include_pattern file_pattern file_glob glob_pattern includes globs"),
    "ignore_case": _names("ignore_case case_insensitive -i"),
    "before": _names("context_before before_context -B"),
    "after": _names("context_after after_context -A"),
    "around": _names("context context_lines -C"),
    "glob": _names("pattern glob glob_pattern file_pattern query search_pattern name filename patterns globs"),
    "ignore": _names("ignore ignore_globs ignore_patterns exclude exclude_patterns"),
    "first_line": _names("offset start_line line_start start from_line start_line_one_indexed"),
    "line_count": _names("limit line_count num_lines max_lines"),
    "last_line": _names("end_line line_end end to_line end_line_inclusive end_line_one_indexed_inclusive"),
    "content": _names("content contents file_text text file_content file_contents new_content code_content"),
    "old": _names("old_string old_str old_text old_content old search find"),
    "new": _names("new_string new_str new_text new_content new replace replacement replace_with"),
    "edits": _names("edits replacements"),
}

_MAY_BE_SEVERAL = {"file", "folder", "regex", "glob", "include"}  # the schema may ask for a list of them
_EDIT_NAMES = [("oldText", "newText"), ("old_string", "new_string"), ("oldString", "newString"), ("search", "replace")]

# What a caller's tool may require that no request of the agent's says.
_DESCRIPTIONS = _names("description explanation purpose reason justification summary title goal instruction rationale")
_APPROVALS = _names("requires_approval")
_FOLDERS = {*_PROPERTIES["cwd"], *_PROPERTIES["folder"]}


class Request(Struct, frozen=True):
    """What is asked for, by meaning. `same` has the agent's own names, for properties that are named so, too."""

    subject: str
    needed: dict[str, Any]
    wished: dict[str, Any] = {}
    same: dict[str, Any] = {}


class Offered(Struct, frozen=True):
    """The arguments that a tool takes."""

    schema: dict[str, Any]
    properties: dict[str, Any]
    required: list[str]

    def accepts(self, name: str, value: object) -> bool:
        definitions = {key: its for key, its in self.schema.items() if key in ("$defs", "definitions")}
        return _fits({name: value}, {**definitions, "properties": self.properties})


def translate(action: Action, tools: Sequence[Tool], *, scratch: str = "") -> tuple[Tool, dict[str, Any]] | None:
    """`scratch` is the empty folder that the agent works in, as the agent names it: it stands for the caller's own."""
    kind, requests = _requests(action, scratch)
    for tool, offered in _known(kind, tools):
        for request in requests:
            for attempt in (request, structs.replace(request, wished={}, same={})):
                if (arguments := _arguments(attempt, offered)) is not None:
                    return tool, arguments
    return _by_name(action, tools) if isinstance(action, OtherTool) and not requests else None


def _by_name(action: OtherTool, tools: Sequence[Tool]) -> tuple[Tool, dict[str, Any]] | None:
    """A tool of the caller's that the agent knows by MCP: by its name, or by its server's and its own."""
    meant = [tool for tool in tools if action.tool == tool.name or action.tool.endswith(f"-{tool.name}")]
    tool = max(meant, key=lambda tool: len(tool.name), default=None)
    if tool is None or _offered(tool) is None or not _fits(action.arguments, tool.parameters):
        return None
    return tool, action.arguments


# --- What is asked for ------------------------------------------------------------------------------


def _requests(action: Action, scratch: str) -> tuple[str, list[Request]]:
    """The kind of tool, and the ways to ask one for it, best first."""
    match action:
        case Command(command=command, working_directory=directory) if command.strip():
            return "shell", _commands(command, _placed(directory, scratch))
        case FileEdit(path=path) if (file := _placed(path, scratch)) not in ("", "."):
            return _change(action, file)
        case OtherTool(tool="read_file", arguments={"target_file": str(path)}) if path:
            file = _placed(path, scratch)
            return "read", [Request(file, {"file": file}, _lines(Fields(action.arguments)))]
        case OtherTool(tool="list_dir", arguments=arguments) if not arguments or "target_directory" in arguments:
            folder = _placed(Fields(arguments).text("target_directory"), scratch) or "."
            ignored = Fields(arguments).texts("ignore_globs")
            where, wished = {"folder": folder}, {"ignore": ignored} if ignored else {}
            # A tool that cannot be told where lists the caller's own folder.
            return "list", [Request(folder, {}, where | wished) if folder == "." else Request(folder, where, wished)]
        case OtherTool(tool="grep", arguments={"pattern": str(pattern)}):
            said = Fields(action.arguments)
            same = {name: value for name, value in said.all.items() if name not in ("pattern", "path", "glob")}
            return "grep", [Request(pattern, {"regex": pattern}, _search(said, scratch), same)]
        case OtherTool(tool="glob_file_search", arguments={"glob_pattern": str(pattern)}) if pattern:
            folder = _placed(Fields(action.arguments).text("target_directory"), scratch)
            return "glob", [Request(pattern, {"glob": pattern}, {"folder": folder} if folder else {})]
        case Command() | FileEdit() | OtherTool() | Plan() | Question() | TodoUpdate():
            return "", []


def _commands(command: str, directory: str) -> list[Request]:
    elsewhere: list[tuple[str, dict[str, Any]]] = [(command, {})]
    if directory not in ("", "."):
        elsewhere = [(command, {"cwd": directory}), (f"cd {shlex.quote(directory)} && {command}", {})]
    return [
        request
        for line, place in elsewhere
        for request in (
            Request(command, {"program": "bash", "arguments": ["-lc", line], **place}),
            Request(command, {"command": line, **place}),
        )
    ]


def _change(edit: FileEdit, file: str) -> tuple[str, list[Request]]:
    match edit:
        case FileEdit(operation="create", content=str(content)):
            return "write", [Request(file, {"file": file, "content": content})]
        case FileEdit(operation="edit", diff=Diff(old_string=old, new_string=new)) if old:  # "" may mean all of a file
            ways: list[dict[str, Any]] = [{"old": old, "new": new}, {"edits": (old, new)}]
            return "edit", [Request(file, {"file": file, **way}) for way in ways]
        case FileEdit(operation="delete"):
            return "delete", [Request(file, {"file": file})]
        case _:  # streamContent may be a whole text or a patch: nothing tells which
            return "", []


def _lines(arguments: Fields) -> dict[str, Any]:
    offset, limit = arguments.integer("offset"), arguments.integer("limit")
    lines: dict[str, Any] = {}
    if offset is not None and offset > 0:
        lines["first_line"] = offset
    if limit is not None and limit > 0:
        lines["line_count"] = limit
        lines["last_line"] = lines.get("first_line", 1) + limit - 1
    return lines


def _search(arguments: Fields, scratch: str) -> dict[str, Any]:
    said = {
        "folder": _placed(arguments.text("path"), scratch),
        "include": arguments.text("glob"),
        "ignore_case": arguments.flag("case_insensitive"),
        "before": arguments.integer("context_before"),
        "after": arguments.integer("context_after"),
        "around": arguments.integer("context"),
    }
    return {"is_regex": True, **{meaning: value for meaning, value in said.items() if value}}


def _placed(path: str, scratch: str) -> str:
    if not path:
        return ""
    path, root = posixpath.normpath(path), posixpath.normpath(scratch)
    if path == root:
        return "."
    return path.removeprefix(f"{root}/") if scratch else path


# --- How a tool is asked for it -----------------------------------------------------------------------


def _known(kind: str, tools: Sequence[Tool]) -> Iterator[tuple[Tool, Offered]]:
    for alias in _TOOLS.get(kind, ()):
        name, _, telling = alias.partition("/")
        for tool in tools:
            offered = _offered(tool) if _plain(tool.name) == _plain(name) else None
            if offered and (not telling or telling in offered.properties):
                yield tool, offered


def _offered(tool: Tool) -> Offered | None:
    schema = tool.parameters
    try:
        check_schema(schema)
    except InvalidRequest:
        return None
    parts = list(_parts(schema, schema, "allOf"))
    return Offered(
        schema=schema,
        properties={name: its for part in parts for name, its in part.get("properties", {}).items()},
        required=[name for part in parts for name in part.get("required", ())],
    )


def _arguments(request: Request, offered: Offered) -> dict[str, Any] | None:
    arguments: dict[str, Any] = {}
    for meaning, value in (request.needed | request.wished).items():
        if found := _place(meaning, value, offered, arguments):
            name, written = found
            arguments[name] = written
        elif meaning in request.needed:
            return None
    for name, value in request.same.items():
        if name in offered.properties and name not in arguments and offered.accepts(name, value):
            arguments[name] = value
    for name in offered.required:
        if name not in arguments:
            filled = [value for value in _fillings(name, request, offered) if offered.accepts(name, value)]
            if not filled:
                return None
            arguments[name] = filled[0]
    return arguments if _fits(arguments, offered.schema) else None


def _place(meaning: str, value: Any, offered: Offered, taken: dict[str, Any]) -> tuple[str, Any] | None:
    """The property for it, rather a required one, and the value as that property takes it."""
    named = [name for alias in _PROPERTIES[meaning] for name in offered.properties if _plain(name) == alias]
    free = sorted((name for name in named if name not in taken), key=lambda name: name not in offered.required)
    written = ((name, form) for name in free for form in _forms(meaning, name, value))
    return next(((name, form) for name, form in written if offered.accepts(name, form)), None)


def _forms(meaning: str, name: str, value: Any) -> list[Any]:
    match meaning, value:
        case "command", _:
            return [value, [value] if name.endswith("s") else ["bash", "-lc", value]]  # `commands`; Codex's `command`
        case "edits", (old, new):
            return [[{its_old: old, its_new: new}] for its_old, its_new in _EDIT_NAMES]
        case "file", _:
            return [value, [value], [{"path": value}]]
        case _, str() if meaning in _MAY_BE_SEVERAL:
            return [value, [value]]
        case _:
            return [value]


def _fillings(name: str, request: Request, offered: Offered) -> Iterator[Any]:
    """What a required property may get that nothing asked for fills, best first."""
    parts = list(_parts(offered.properties.get(name), offered.schema, "anyOf", "oneOf", "allOf"))
    types = [type for part in parts for type in _listed(part.get("type"))]
    if _plain(name) in _APPROVALS:
        yield True
    yield from (part["default"] for part in parts if "default" in part)
    if "null" in types:
        yield None
    if _plain(name) in _DESCRIPTIONS:
        yield " ".join(request.subject.split())[:_LONGEST_DESCRIPTION]
    if _plain(name) in _FOLDERS:
        yield "."
    if "boolean" in types:
        yield False
    yield from (value for part in parts for value in part.get("enum", ())[:1])
    yield from (part["const"] for part in parts if "const" in part)


# --- Schemas ------------------------------------------------------------------------------------------


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _parts(schema: Any, root: dict[str, Any], *branches: str) -> Iterator[dict[str, Any]]:
    """A schema, what it refers to, and what stands in these branches of it, each once."""
    waiting, seen = [schema], set()
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, dict) and id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting.append(_referred(part.get("$ref", ""), root))
            waiting += [inner for branch in branches for inner in part.get(branch, ())]


def _referred(reference: str, root: dict[str, Any]) -> Any:
    """Definitions alone are known to be schemas; a reference may point anywhere."""
    start, _, rest = reference.partition("/")
    place, _, name = rest.partition("/")
    if start != "#" or place not in ("$defs", "definitions"):
        return None
    return root.get(place, {}).get(name.replace("~1", "/").replace("~0", "~"))


def _fits(arguments: dict[str, Any], schema: dict[str, Any]) -> bool:
    try:
        return not violation(arguments, schema)
    except Uncheckable:
        return False
