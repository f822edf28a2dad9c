"""Translate a request for one of the agent's own tools into a call of a caller's tool, if one fits.

In a run with the caller's tools the agent's own are denied, but the agent sometimes asks for them anyway. Clients use
different names for the same things, so a request is first expressed in neutral meanings (`_requests`). The caller's
tool is then found by its name (`_TOOLS`), and each meaning's property in the schema that the caller offered
(`_PROPERTIES`). Whether a property accepts a value is decided by validating against the schema, so references and
unions need no rules here. No call is better than an invalid one.
"""

import posixpath
import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.agent_events import Action, Command, FileEdit, OtherTool, Plan, Question, TodoUpdate
from cursor_gateway.model.caller_tools import Tool
from cursor_gateway.model.documents import ClarificationQuestion, Diff
from cursor_gateway.prompting.structured import Uncheckable, check_schema, violation
from cursor_gateway.wire.payload import Fields

_LONGEST_DESCRIPTION = 60
_LONGEST_HEADER = 12


def _plain(name: str) -> str:
    """The same for `file_path`, `file-path`, `filePath` and `FilePath`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _names(names: str) -> tuple[str, ...]:
    return tuple(_plain(name) for name in names.split())


# Tool names used by clients, best first. After a slash: a property that the tool must have; without it the name means
# something else.
_TOOLS: dict[str, str] = {
    "shell": (
        "bash shell run_shell_command execute_command run_terminal_command run_terminal_cmd exec_command shell_command"
        " local_shell run_in_terminal run_command run_commands terminal execute_bash run_bash run_bash_command"
        " execute_shell_command shell_exec exec developer__shell container.exec"
    ),
    "read": "read read_file view view_file read_text_file file_read fs_read cat read_files read_many_files",
    "list": "list ls list_dir list_directory list_files list_folder list_directory_contents",
    "grep": (
        "grep grep_search search_file_content search_files/regex grep_files ripgrep rg search_text text_search"
        " search_content search_in_files find_in_files search_file_contents search_for_pattern search_codebase/queries"
    ),
    "glob": (
        "glob glob_file_search file_glob_search find_files file_search find_path find glob_files glob_search"
        " find_by_name search_files/pattern"
    ),
    "edit": (
        "edit edit_file str_replace search_replace replace replace_string_in_file string_replace"
        " single_find_and_replace search_and_replace replace_in_file"
    ),
    "write": "write write_file write_to_file create_file create_new_file create file_write",
    "delete": "delete delete_file remove_file file_delete rm",
    "question": "ask_user_question",
}

# Property names for each meaning, best first.
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
    "questions": _names("questions"),
}

_MAY_BE_SEVERAL = {"file", "folder", "regex", "glob", "include"}  # the schema may require a list of them
_EDIT_NAMES = [("oldText", "newText"), ("old_string", "new_string"), ("oldString", "newString"), ("search", "replace")]

# Properties that a caller's tool may require and the agent's requests never have.
_DESCRIPTIONS = _names("description explanation purpose reason justification summary title goal instruction rationale")
_APPROVALS = _names("requires_approval")
_FOLDERS = {*_PROPERTIES["cwd"], *_PROPERTIES["folder"]}


class _Request(Struct, frozen=True):
    """The agent's request, by meaning. `same` has arguments under the agent's own names, used where names agree."""

    subject: str
    needed: dict[str, Any]
    optional: dict[str, Any] = {}
    same: dict[str, Any] = {}


class _Offered(Struct, frozen=True):
    """The arguments that a tool accepts."""

    schema: dict[str, Any]
    properties: dict[str, Any]
    required: list[str]

    def accepts(self, name: str, value: object) -> bool:
        definitions = {key: its for key, its in self.schema.items() if key in ("$defs", "definitions")}
        return _fits({name: value}, {**definitions, "properties": self.properties})


def translate(action: Action, tools: Sequence[Tool], *, scratch: str = "") -> tuple[Tool, dict[str, Any]] | None:
    """`scratch` is the empty folder that the agent works in; paths in it stand for paths in the caller's folder."""
    kind, requests = _requests(action, scratch)
    for tool, offered in _known(kind, tools):
        for request in requests:
            for attempt in (request, structs.replace(request, optional={}, same={})):
                if (arguments := _arguments(attempt, offered)) is not None:
                    return tool, arguments
    return _by_name(action, tools) if isinstance(action, OtherTool) and not requests else None


def _by_name(action: OtherTool, tools: Sequence[Tool]) -> tuple[Tool, dict[str, Any]] | None:
    """A caller's tool that the agent knows through MCP: by its name, or as SERVER-NAME."""
    meant = [tool for tool in tools if action.tool == tool.name or action.tool.endswith(f"-{tool.name}")]
    tool = max(meant, key=lambda tool: len(tool.name), default=None)
    if tool is None or _offered(tool) is None or not _fits(action.arguments, tool.parameters):
        return None
    return tool, action.arguments


# --- Reading the request ----------------------------------------------------------------------------


def _requests(action: Action, scratch: str) -> tuple[str, list[_Request]]:
    """The kind of tool, and equivalent requests to try on it, best first."""
    match action:
        case Command(command=command, working_directory=directory) if command.strip():
            return "shell", _commands(command, _placed(directory, scratch))
        case FileEdit(path=path) if (file := _placed(path, scratch)) not in ("", "."):
            return _change(action, file)
        case OtherTool(tool="read_file", arguments={"target_file": str(path)}) if path:
            file = _placed(path, scratch)
            return "read", [_Request(file, {"file": file}, _lines(Fields(action.arguments)))]
        case OtherTool(tool="list_dir", arguments=arguments) if not arguments or "target_directory" in arguments:
            folder = _placed(Fields(arguments).text("target_directory"), scratch) or "."
            ignored = Fields(arguments).texts("ignore_globs")
            where, optional = {"folder": folder}, {"ignore": ignored} if ignored else {}
            # A tool without a folder argument lists the caller's working folder.
            return "list", [
                _Request(folder, {}, where | optional) if folder == "." else _Request(folder, where, optional)
            ]
        case OtherTool(tool="grep", arguments={"pattern": str(pattern)}):
            fields = Fields(action.arguments)
            same = {name: value for name, value in fields.all.items() if name not in ("pattern", "path", "glob")}
            return "grep", [_Request(pattern, {"regex": pattern}, _search(fields, scratch), same)]
        case OtherTool(tool="glob_file_search", arguments={"glob_pattern": str(pattern)}) if pattern:
            folder = _placed(Fields(action.arguments).text("target_directory"), scratch)
            return "glob", [_Request(pattern, {"glob": pattern}, {"folder": folder} if folder else {})]
        case Question(questions=[first, *_] as questions):
            return "question", [_Request(first.text, {"questions": questions})]
        case Command() | FileEdit() | OtherTool() | Plan() | Question() | TodoUpdate():
            return "", []


def _commands(command: str, directory: str) -> list[_Request]:
    elsewhere: list[tuple[str, dict[str, Any]]] = [(command, {})]
    if directory not in ("", "."):
        elsewhere = [(command, {"cwd": directory}), (f"cd {shlex.quote(directory)} && {command}", {})]
    return [
        request
        for line, place in elsewhere
        for request in (
            _Request(command, {"program": "bash", "arguments": ["-lc", line], **place}),
            _Request(command, {"command": line, **place}),
        )
    ]


def _change(edit: FileEdit, file: str) -> tuple[str, list[_Request]]:
    match edit:
        case FileEdit(operation="create", content=str(content)):
            return "write", [_Request(file, {"file": file, "content": content})]
        case FileEdit(operation="edit", diff=Diff(old_string=old, new_string=new)) if old:  # "" may mean all of a file
            ways: list[dict[str, Any]] = [{"old": old, "new": new}, {"edits": (old, new)}]
            return "edit", [_Request(file, {"file": file, **way}) for way in ways]
        case FileEdit(operation="delete"):
            return "delete", [_Request(file, {"file": file})]
        case _:  # streamContent may be a whole file or a patch, and nothing says which
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
    meanings = {
        "folder": _placed(arguments.text("path"), scratch),
        "include": arguments.text("glob"),
        "ignore_case": arguments.flag("case_insensitive"),
        "before": arguments.integer("context_before"),
        "after": arguments.integer("context_after"),
        "around": arguments.integer("context"),
    }
    return {"is_regex": True, **{meaning: value for meaning, value in meanings.items() if value}}


def _placed(path: str, scratch: str) -> str:
    if not path:
        return ""
    path, root = posixpath.normpath(path), posixpath.normpath(scratch)
    if path == root:
        return "."
    return path.removeprefix(f"{root}/") if scratch else path


# --- Building the call --------------------------------------------------------------------------------


def _known(kind: str, tools: Sequence[Tool]) -> Iterator[tuple[Tool, _Offered]]:
    for alias in _TOOLS.get(kind, "").split():
        name, _, marker = alias.partition("/")
        for tool in tools:
            offered = _offered(tool) if _plain(tool.name) == _plain(name) else None
            if offered and (not marker or marker in offered.properties):
                yield tool, offered


def _offered(tool: Tool) -> _Offered | None:
    schema = tool.parameters
    try:
        check_schema(schema)
    except InvalidRequest:
        return None
    parts = list(_parts(schema, schema, "allOf"))
    return _Offered(
        schema=schema,
        properties={name: its for part in parts for name, its in part.get("properties", {}).items()},
        required=[name for part in parts for name in part.get("required", ())],
    )


def _arguments(request: _Request, offered: _Offered) -> dict[str, Any] | None:
    arguments: dict[str, Any] = {}
    for meaning, value in (request.needed | request.optional).items():
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
            filled = [value for value in _default_values(name, request, offered) if offered.accepts(name, value)]
            if not filled:
                return None
            arguments[name] = filled[0]
    return arguments if _fits(arguments, offered.schema) else None


def _place(meaning: str, value: Any, offered: _Offered, taken: dict[str, Any]) -> tuple[str, Any] | None:
    """The property for a meaning, preferably a required one, and the value in a form that it accepts."""
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
        case "questions", _:
            return [[_asked(question) for question in value]]
        case _, str() if meaning in _MAY_BE_SEVERAL:
            return [value, [value]]
        case _:
            return [value]


def _asked(question: ClarificationQuestion) -> dict[str, Any]:
    """As Claude Code's tool takes it."""
    return {
        "question": question.text,
        "header": textwrap.shorten(question.text, _LONGEST_HEADER, placeholder="") or "Question",
        "options": [{"label": option.label, "description": ""} for option in question.options],
        "multiSelect": bool(question.allow_multiple),
    }


def _default_values(name: str, request: _Request, offered: _Offered) -> Iterator[Any]:
    """Values for a required property that the request does not set, best first."""
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
    """A schema, the schemas it refers to, and those in the given branches, each once."""
    waiting, seen = [schema], set()
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, dict) and id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting.append(_referred(part.get("$ref", ""), root))
            waiting += [inner for branch in branches for inner in part.get(branch, ())]


def _referred(reference: str, root: dict[str, Any]) -> Any:
    """Follows references into definitions only: elsewhere the target may not be a schema."""
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
