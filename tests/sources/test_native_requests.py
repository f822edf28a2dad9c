"""What the agent asks of its own tools in, what the caller is asked for out; schemas as real clients write them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import UNSET

from cursor_gateway.model.agent_events import Action, Command, FileEdit, OtherTool, Plan, Question, TodoUpdate
from cursor_gateway.model.caller_tools import Tool
from cursor_gateway.model.documents import ClarificationOption, ClarificationQuestion, Diff
from cursor_gateway.sources.cursor.native_requests import translate
from cursor_gateway.sources.cursor.tools import read_call
from tests.strategies import examples

SCRATCH = "/tmp/gateway/run-1"
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
FLAG: dict[str, Any] = {"type": "boolean"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}


def tool(name: str, required: str, optional: str = "", /, **properties: Any) -> Tool:
    """A tool whose arguments are strings, unless they are described."""
    names = [*required.split(), *optional.split()]
    schema = {"type": "object", "properties": {name: properties.get(name, TEXT) for name in names}}
    return Tool(name, parameters={**schema, "required": required.split(), "additionalProperties": False})


def asked(action: Action, *tools: Tool, scratch: str = SCRATCH) -> tuple[str, dict[str, Any]] | None:
    found = translate(action, tools, scratch=scratch)
    if found is None:
        return None
    chosen, arguments = found
    assert list(Draft202012Validator(chosen.parameters).iter_errors(arguments)) == []
    return chosen.name, arguments


def shell(command: str = "git status", where: str = SCRATCH) -> Action:
    return read_call("shell", {"command": command, "workingDirectory": where, "timeout": 30000, "toolCallId": "1"})


READ = read_call("read", {"path": f"{SCRATCH}/src/a.py"})
LS = read_call("ls", {"path": SCRATCH, "ignore": [], "toolCallId": "1"})
GREP = read_call("grep", {"pattern": "def .*", "path": f"{SCRATCH}/src", "toolCallId": "1"})
GLOB = read_call("glob", {"targetDirectory": f"{SCRATCH}/src", "globPattern": "**/*.py"})
WRITE = read_call("write", {"path": f"{SCRATCH}/a.py", "fileText": "x = 1\n"})
EDIT = read_call("edit", {"path": f"{SCRATCH}/a.py", "strReplace": {"oldText": "x = 1", "newText": "x = 2"}})
DELETE = read_call("delete", {"path": f"{SCRATCH}/a.py"})


# --- The table of seed 001 --------------------------------------------------------------------------


def test_shell_is_bash_with_a_command_and_a_folder_that_is_not_the_callers_own() -> None:
    bash = tool("bash", "command", "cwd")
    assert asked(shell(where=f"{SCRATCH}/src"), bash) == ("bash", {"command": "git status", "cwd": "src"})


def test_mcp_is_the_tool_of_its_name_with_its_own_arguments() -> None:
    weather = tool("weather", "city")
    by_both = read_call("mcp", {"name": "caller-weather", "toolName": "weather", "args": {"city": "Bern"}})
    by_prefix = read_call("mcp", {"name": "caller-weather", "args": {"city": "Bern"}})
    assert asked(by_both, weather) == asked(by_prefix, weather) == ("weather", {"city": "Bern"})


# --- Real clients -----------------------------------------------------------------------------------

OPENCODE = [
    tool("bash", "command description", "timeout workdir", timeout=NUMBER),
    tool("read", "filePath", "offset limit", offset=NUMBER, limit=NUMBER),
    tool("list", "", "path ignore", ignore=TEXTS),
    tool("grep", "pattern", "path include"),
    tool("glob", "pattern", "path"),
    tool("edit", "filePath oldString newString", "replaceAll", replaceAll=FLAG),
    tool("write", "content filePath"),
    tool("todowrite", "todos", todos={"type": "array"}),
]
CLINE = [
    tool("execute_command", "command requires_approval", "timeout", requires_approval=FLAG, timeout=NUMBER),
    tool("read_file", "path", "task_progress"),
    tool("list_files", "path", "recursive", recursive=FLAG),
    tool("search_files", "path regex", "file_pattern"),
    tool("write_to_file", "path content"),
    tool("replace_in_file", "path diff"),
]
FILES = {"type": "array", "items": {"type": "object", "properties": {"path": TEXT}, "required": ["path"]}}
CLINE_CLI = [
    tool("run_commands", "commands", commands=TEXTS),
    tool("read_files", "files", files=FILES),
    tool("search_codebase", "queries", queries={"anyOf": [TEXTS, {"type": "null"}]}),
]
CLAUDE_CODE = [
    tool("Bash", "command", "description timeout run_in_background", timeout=NUMBER, run_in_background=FLAG),
    tool("Read", "file_path", "offset limit", offset={"type": "integer"}, limit={"type": "integer"}),
    tool("LS", "path", "ignore", ignore=TEXTS),
    tool(
        *("Grep", "pattern", "path glob output_mode -i -B -A -C head_limit multiline"),
        output_mode={"enum": ["content", "files_with_matches", "count"]},
        multiline=FLAG,
        **{"-i": FLAG, "-B": NUMBER, "-A": NUMBER, "-C": NUMBER, "head_limit": NUMBER},
    ),
    tool("Glob", "pattern", "path"),
    tool("Edit", "file_path old_string new_string", "replace_all", replace_all={**FLAG, "default": False}),
    tool("Write", "file_path content"),
]
CODEX = [tool("shell", "command", "workdir timeout_ms", command=TEXTS, timeout_ms=NUMBER)]
CODEX_UNIFIED = [tool("exec_command", "cmd", "workdir shell login yield_time_ms", login=FLAG, yield_time_ms=NUMBER)]
QWEN = [
    tool("run_shell_command", "command is_background", "description directory", is_background=FLAG),
    tool("read_file", "absolute_path", "offset limit", offset=NUMBER, limit=NUMBER),
    tool("list_directory", "path", "ignore", ignore=TEXTS),
    tool("search_file_content", "pattern", "path glob limit", limit=NUMBER),
    tool("glob", "pattern", "path"),
    tool("write_file", "file_path content"),
    tool("replace", "file_path old_string new_string instruction"),
]
EDITS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"oldText": TEXT, "newText": TEXT},
        "required": ["oldText", "newText"],
        "additionalProperties": False,
    },
}
PI = [
    tool("bash", "command", "timeout", timeout=NUMBER),
    tool("read", "path", "offset limit", offset=NUMBER, limit=NUMBER),
    tool("ls", "", "path limit", limit=NUMBER),
    tool("grep", "pattern", "path glob ignoreCase literal context limit", ignoreCase=FLAG, literal=FLAG),
    tool("find", "pattern", "path limit", limit=NUMBER),
    tool("edit", "path edits", edits=EDITS),
    tool("write", "path content"),
]
COPILOT = [
    tool("run_in_terminal", "command explanation isBackground", isBackground=FLAG),
    tool("read_file", "filePath startLine endLine", startLine=NUMBER, endLine=NUMBER),
    tool("list_dir", "path"),
    tool("grep_search", "query isRegexp", "includePattern maxResults", isRegexp=FLAG, maxResults=NUMBER),
    tool("file_search", "query", "maxResults", maxResults=NUMBER),
    tool("replace_string_in_file", "filePath oldString newString"),
    tool("create_file", "filePath content"),
]
CONTINUE = [
    tool("run_terminal_command", "command", "waitForCompletion", waitForCompletion=FLAG),
    tool("read_file", "filepath"),
    tool("ls", "", "dirPath recursive", recursive=FLAG),
    tool("grep_search", "query"),
    tool("file_glob_search", "pattern"),
    tool("create_new_file", "filepath contents"),
]
ZED = [
    tool("terminal", "command cd"),
    tool("find_path", "glob", "offset", offset=NUMBER),
    tool("grep", "regex", "include_pattern case_sensitive", case_sensitive=FLAG),
    tool("delete_path", "path"),
]

BASH = ["bash", "-lc", "git status"]


@pytest.mark.parametrize(
    ("client", "action", "expected"),
    [
        (OPENCODE, shell(), ("bash", {"command": "git status", "description": "git status"})),
        (OPENCODE, READ, ("read", {"filePath": "src/a.py"})),
        (OPENCODE, LS, ("list", {"path": "."})),
        (OPENCODE, GREP, ("grep", {"pattern": "def .*", "path": "src"})),
        (OPENCODE, GLOB, ("glob", {"pattern": "**/*.py", "path": "src"})),
        (OPENCODE, EDIT, ("edit", {"filePath": "a.py", "oldString": "x = 1", "newString": "x = 2"})),
        (OPENCODE, WRITE, ("write", {"filePath": "a.py", "content": "x = 1\n"})),
        (OPENCODE, DELETE, None),
        (CLINE, shell(), ("execute_command", {"command": "git status", "requires_approval": True})),
        (CLINE, READ, ("read_file", {"path": "src/a.py"})),
        (CLINE, LS, ("list_files", {"path": "."})),
        (CLINE, GREP, ("search_files", {"path": "src", "regex": "def .*"})),
        (CLINE, read_call("grep", {"pattern": "x"}), ("search_files", {"path": ".", "regex": "x"})),
        (CLINE, GLOB, None),
        (CLINE, WRITE, ("write_to_file", {"path": "a.py", "content": "x = 1\n"})),
        (CLINE, EDIT, None),
        (CLINE_CLI, shell(), ("run_commands", {"commands": ["git status"]})),
        (CLINE_CLI, READ, ("read_files", {"files": [{"path": "src/a.py"}]})),
        (CLINE_CLI, GREP, ("search_codebase", {"queries": ["def .*"]})),
        (CLAUDE_CODE, shell(), ("Bash", {"command": "git status"})),
        (CLAUDE_CODE, READ, ("Read", {"file_path": "src/a.py"})),
        (CLAUDE_CODE, LS, ("LS", {"path": "."})),
        (CLAUDE_CODE, GREP, ("Grep", {"pattern": "def .*", "path": "src"})),
        (CLAUDE_CODE, GLOB, ("Glob", {"pattern": "**/*.py", "path": "src"})),
        (CLAUDE_CODE, EDIT, ("Edit", {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"})),
        (CLAUDE_CODE, WRITE, ("Write", {"file_path": "a.py", "content": "x = 1\n"})),
        (CODEX, shell(), ("shell", {"command": BASH})),
        (CODEX, shell(where="/srv"), ("shell", {"command": BASH, "workdir": "/srv"})),
        (CODEX_UNIFIED, shell(), ("exec_command", {"cmd": "git status"})),
        (QWEN, shell(), ("run_shell_command", {"command": "git status", "is_background": False})),
        (QWEN, READ, ("read_file", {"absolute_path": "src/a.py"})),
        (QWEN, LS, ("list_directory", {"path": "."})),
        (QWEN, GREP, ("search_file_content", {"pattern": "def .*", "path": "src"})),
        (QWEN, GLOB, ("glob", {"pattern": "**/*.py", "path": "src"})),
        (QWEN, WRITE, ("write_file", {"file_path": "a.py", "content": "x = 1\n"})),
        (
            QWEN,
            EDIT,
            ("replace", {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2", "instruction": "a.py"}),
        ),
        (PI, shell(), ("bash", {"command": "git status"})),
        (PI, READ, ("read", {"path": "src/a.py"})),
        (PI, LS, ("ls", {"path": "."})),
        (PI, GREP, ("grep", {"pattern": "def .*", "path": "src"})),
        (PI, GLOB, ("find", {"pattern": "**/*.py", "path": "src"})),
        (PI, EDIT, ("edit", {"path": "a.py", "edits": [{"oldText": "x = 1", "newText": "x = 2"}]})),
        (PI, WRITE, ("write", {"path": "a.py", "content": "x = 1\n"})),
        (
            COPILOT,
            shell(),
            ("run_in_terminal", {"command": "git status", "explanation": "git status", "isBackground": False}),
        ),
        (COPILOT, READ, None),  # it must be told which lines
        (COPILOT, GREP, ("grep_search", {"query": "def .*", "isRegexp": True})),
        (COPILOT, GLOB, ("file_search", {"query": "**/*.py"})),
        (COPILOT, EDIT, ("replace_string_in_file", {"filePath": "a.py", "oldString": "x = 1", "newString": "x = 2"})),
        (COPILOT, WRITE, ("create_file", {"filePath": "a.py", "content": "x = 1\n"})),
        (CONTINUE, shell(), ("run_terminal_command", {"command": "git status"})),
        (CONTINUE, READ, ("read_file", {"filepath": "src/a.py"})),
        (CONTINUE, LS, ("ls", {"dirPath": "."})),
        (CONTINUE, GREP, ("grep_search", {"query": "def .*"})),
        (CONTINUE, GLOB, ("file_glob_search", {"pattern": "**/*.py"})),
        (CONTINUE, WRITE, ("create_new_file", {"filepath": "a.py", "contents": "x = 1\n"})),
        (ZED, shell(), ("terminal", {"command": "git status", "cd": "."})),
        (ZED, GLOB, ("find_path", {"glob": "**/*.py"})),
        (ZED, GREP, ("grep", {"regex": "def .*"})),
    ],
)
def test_real_clients(client: list[Tool], action: Action, expected: tuple[str, dict[str, Any]] | None) -> None:
    assert asked(action, *client) == expected


def test_other_arguments_of_a_search_are_kept_where_the_tool_has_them() -> None:
    args = {"pattern": "x", "glob": "*.py", "outputMode": "content", "caseInsensitive": True, "headLimit": 5}
    grep = read_call("grep", {**args, "contextBefore": 1, "contextAfter": 2, "context": 3, "multiline": True})
    options = {"output_mode": "content", "head_limit": 5, "multiline": True}
    lines = {"-i": True, "-B": 1, "-A": 2, "-C": 3}
    assert asked(grep, *CLAUDE_CODE) == ("Grep", {"pattern": "x", "glob": "*.py", **options, **lines})
    assert asked(grep, *OPENCODE) == ("grep", {"pattern": "x", "include": "*.py"})
    assert asked(grep, *PI) == ("grep", {"pattern": "x", "glob": "*.py", "ignoreCase": True})


def test_what_a_listing_leaves_out_is_kept_where_the_tool_has_it() -> None:
    listing = read_call("ls", {"path": f"{SCRATCH}/src", "ignore": ["*.pyc"]})
    assert asked(listing, *OPENCODE) == ("list", {"path": "src", "ignore": ["*.pyc"]})
    assert asked(listing, *CONTINUE) == ("ls", {"dirPath": "src"})


@pytest.mark.parametrize(
    ("offset", "limit", "by_limit", "by_end"),
    [
        (None, None, {}, {}),
        (10, 5, {"offset": 10, "limit": 5}, {"start_line": 10, "end_line": 14}),
        (10, None, {"offset": 10}, {"start_line": 10}),
        (None, 5, {"limit": 5}, {"end_line": 5}),
        (-10, 0, {}, {}),  # from the end: nobody else knows that
    ],
)
def test_lines_are_numbered_as_the_tool_counts_them(
    offset: int | None, limit: int | None, by_limit: dict[str, int], by_end: dict[str, int]
) -> None:
    read = read_call("read", {"path": "a.py", "offset": offset, "limit": limit})
    ranged = tool("read_file", "path", "start_line end_line", start_line=NUMBER, end_line={"type": ["integer", "null"]})
    assert asked(read, *OPENCODE) == ("read", {"filePath": "a.py", **by_limit})
    assert asked(read, ranged) == ("read_file", {"path": "a.py", **by_end})


# --- Which tool, which property ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Bash", "run_shell_command", "runShellCommand", "run-shell-command", "Exec_Command"])
def test_names_are_the_same_in_any_spelling(name: str) -> None:
    assert asked(shell(), tool(name, "command")) == (name, {"command": "git status"})


def test_the_best_known_name_is_taken_whatever_the_order() -> None:
    both = [tool("terminal", "command"), tool("bash", "command")]
    assert asked(shell(), *both) == asked(shell(), *reversed(both)) == ("bash", {"command": "git status"})


def test_a_tool_that_cannot_be_asked_leaves_it_to_the_next() -> None:
    lacking = tool("bash", "command session", session={"type": "integer"})
    assert asked(shell(), lacking, tool("terminal", "command")) == ("terminal", {"command": "git status"})


def test_search_files_is_two_tools() -> None:
    by_name = tool("search_files", "path pattern", "excludePatterns", excludePatterns=TEXTS)
    by_text = tool("search_files", "path regex")
    assert asked(GLOB, by_name) == ("search_files", {"path": "src", "pattern": "**/*.py"})
    assert asked(GREP, by_name) is None
    assert asked(GREP, by_text) == ("search_files", {"path": "src", "regex": "def .*"})
    assert asked(GLOB, by_text) is None


@pytest.mark.parametrize(
    ("offered", "action", "arguments"),
    [
        (tool("bash", "cmd"), shell(), {"cmd": "git status"}),
        (tool("bash", "script"), shell(), {"script": "git status"}),
        (tool("read", "path"), READ, {"path": "src/a.py"}),
        (tool("read", "file_path"), READ, {"file_path": "src/a.py"}),
        (tool("read", "target-file"), READ, {"target-file": "src/a.py"}),
        (tool("read", "paths", paths=TEXTS), READ, {"paths": ["src/a.py"]}),
        (tool("read", "file", "path"), READ, {"file": "src/a.py"}),
        (tool("grep", "query", "regex", regex=FLAG), GREP, {"query": "def .*", "regex": True}),
        (tool("grep", "regex", "pattern"), GREP, {"regex": "def .*"}),
        (tool("grep", "regex", regex={}), GREP, {"regex": "def .*"}),
        (tool("grep", "pattern paths", paths=TEXTS), GREP, {"pattern": "def .*", "paths": ["src"]}),
        (tool("bash", "command args", args=TEXTS), shell(), {"command": "bash", "args": ["-lc", "git status"]}),
        (tool("list", "", "recursive", recursive=FLAG), LS, {}),
        (tool("delete_file", "path"), DELETE, {"path": "a.py"}),
    ],
)
def test_the_properties_are_those_that_were_offered(offered: Tool, action: Action, arguments: dict[str, Any]) -> None:
    assert asked(action, offered) == (offered.name, arguments)


@pytest.mark.parametrize(
    ("offered", "action"),
    [
        (tool("bash", "text"), shell()),
        (tool("bash", "command", command=NUMBER), shell()),
        (tool("list", "", "recursive"), read_call("ls", {"path": f"{SCRATCH}/src"})),
        (tool("edit", "path"), EDIT),
        (tool("write", "path"), WRITE),
        (Tool("bash"), shell()),
        (Tool("bash", parameters={"type": "nonsense"}), shell()),
        (Tool("bash", parameters={"properties": 5}), shell()),
        (Tool("bash", parameters={"$ref": "#"}), shell()),
        (Tool("bash", parameters={"properties": {"command": {"allOf": [{"$ref": "#/properties/command"}]}}}), shell()),
        (Tool("bash", parameters={"properties": {"command": {"$ref": "https://example.org/"}}}), shell()),
    ],
)
def test_a_tool_without_the_properties_cannot_be_asked(offered: Tool, action: Action) -> None:
    assert asked(action, offered) is None


def test_a_wish_that_makes_the_call_invalid_is_given_up() -> None:
    schema = {**tool("read", "path", "offset limit", offset=NUMBER, limit=NUMBER).parameters, "maxProperties": 1}
    read = read_call("read", {"path": "a.py", "offset": 10, "limit": 5})
    assert asked(read, Tool("read", parameters=schema)) == ("read", {"path": "a.py"})


# --- What is required besides -----------------------------------------------------------------------

MODES = {"$defs": {"Mode": {"enum": ["fast", "slow"]}}}


@pytest.mark.parametrize(
    ("name", "schema", "value"),
    [
        ("description", TEXT, "git status"),
        ("explanation", {"type": ["string", "null"]}, None),
        ("requires_approval", FLAG, True),
        ("background", FLAG, False),
        ("background", {"anyOf": [FLAG, TEXT]}, False),
        ("timeout", {"type": "integer", "default": 60}, 60),
        ("timeout", {"anyOf": [NUMBER, {"type": "null"}]}, None),
        ("cwd", TEXT, "."),
        ("cwd", {"type": ["string", "null"]}, None),
        ("mode", {"$ref": "#/$defs/Mode"}, "fast"),
        ("mode", {"allOf": [{"$ref": "#/$defs/Mode"}], "default": "slow"}, "slow"),
        ("mode", {"oneOf": [{"const": "once"}, {"const": "twice"}]}, "once"),
        ("mode", {"enum": ["fast", "slow"], "default": "gone"}, "fast"),
    ],
)
def test_what_is_required_besides_is_filled(name: str, schema: dict[str, Any], value: Any) -> None:
    offered = tool("bash", f"command {name}", **{name: schema})
    offered = Tool("bash", parameters={**offered.parameters, **MODES})
    assert asked(shell(), offered) == ("bash", {"command": "git status", name: value})


@pytest.mark.parametrize(
    "schema", [TEXT, NUMBER, TEXTS, {}, True, False, {"enum": []}, {"$ref": "#/$defs/Loop"}, {"$ref": "#"}]
)
def test_what_is_required_and_cannot_be_known_means_no_call(schema: Any) -> None:
    offered = tool("bash", "command secret", secret=schema)
    loop = {"$defs": {"Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop/anyOf/0"}]}}}
    assert asked(shell(), Tool("bash", parameters={**offered.parameters, **loop})) is None


def test_a_description_is_short_and_one_line() -> None:
    long = "for f in *; do\n  echo $f\ndone; " + "true; " * 20
    found = asked(shell(long), *OPENCODE)
    assert found is not None
    assert found[1]["description"] == "for f in *; do echo $f done; true; true; true; true; true; t"
    assert found[1]["command"] == long


def test_pydantic_and_zod_schemas_are_read_through_their_references() -> None:
    optional = {"anyOf": [{"$ref": "#/$defs/Path"}, {"type": "null"}], "default": None, "title": "Cwd"}
    properties = {"command": {"title": "Command", "type": "string"}, "cwd": optional}
    schema = {"type": "object", "properties": properties, "required": ["command"]}
    pydantic = Tool("bash", parameters={**schema, "$defs": {"Path": TEXT}})
    zod = Tool("bash", parameters={"$ref": "#/definitions/a~1b~0c", "definitions": {"a/b~c": schema, "Path": TEXT}})
    zod.parameters["$defs"] = {"Path": TEXT}
    parts = Tool("bash", parameters={"allOf": [schema, {"required": ["cwd"]}], "$defs": {"Path": TEXT}})
    expected = ("bash", {"command": "git status", "cwd": "/srv"})
    assert [asked(shell(where="/srv"), offered) for offered in (pydantic, zod, parts)] == [expected] * 3


def test_regular_expressions_of_a_schema_are_not_run() -> None:
    offered = tool("bash", "command", command={"type": "string", "pattern": "^(a+)+$"})
    assert translate(shell("a" * 40 + "!", where=""), [offered]) == (offered, {"command": "a" * 40 + "!"})


# --- Folders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["", SCRATCH, f"{SCRATCH}/", f"{SCRATCH}/src/..", "."])
def test_the_agents_folder_is_the_callers_own(own: str) -> None:
    assert asked(shell(where=own), tool("bash", "command", "cwd")) == ("bash", {"command": "git status"})
    assert asked(shell(where=own), tool("bash", "command")) == ("bash", {"command": "git status"})
    assert asked(read_call("ls", {"path": own} if own else {}), tool("list", "path")) == ("list", {"path": "."})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{SCRATCH}/a b.py", "a b.py"),
        (f"{SCRATCH}/../run-2/a.py", "/tmp/gateway/run-2/a.py"),
        (f"{SCRATCH}0/a.py", f"{SCRATCH}0/a.py"),
        ("/etc/hosts", "/etc/hosts"),
        ("src/a.py", "src/a.py"),
        ("../a.py", "../a.py"),
    ],
)
def test_paths_below_the_agents_folder_are_relative_to_the_callers(path: str, expected: str) -> None:
    assert asked(read_call("read", {"path": path}), *OPENCODE) == ("read", {"filePath": expected})


def test_without_a_scratch_folder_paths_stay() -> None:
    assert asked(READ, *OPENCODE, scratch="") == ("read", {"filePath": f"{SCRATCH}/src/a.py"})


def test_a_folder_that_has_no_property_goes_before_the_command() -> None:
    elsewhere = shell(where=f"{SCRATCH}/it's here")
    moved = """cd 'it'"'"'s here' && git status"""
    assert asked(elsewhere, *PI) == ("bash", {"command": moved})
    assert asked(elsewhere, tool("run_command", "command args", args=TEXTS)) == (
        "run_command",
        {"command": "bash", "args": ["-lc", moved]},
    )


# --- Names of the caller's own ----------------------------------------------------------------------


def test_the_longest_name_after_the_servers_is_meant() -> None:
    tools = [tool("search", "q"), tool("web-search", "q"), tool("arch", "q")]
    assert asked(OtherTool(tool="caller-web-search", arguments={"q": "x"}), *tools) == ("web-search", {"q": "x"})
    assert asked(OtherTool(tool="caller-search", arguments={"q": "x"}), *tools) == ("search", {"q": "x"})


def test_arguments_that_do_not_fit_the_callers_tool_are_not_sent() -> None:
    assert asked(OtherTool(tool="weather", arguments={"town": "Bern"}), tool("weather", "city")) is None
    assert asked(OtherTool(tool="weather", arguments={}), Tool("weather", parameters={"type": "none"})) is None


def test_a_tool_of_the_callers_may_be_named_like_one_of_the_agents() -> None:
    own = OtherTool(tool="read_file", arguments={"path": "a.py", "encoding": "utf-8"})
    assert asked(own, tool("read_file", "path", "encoding")) == ("read_file", own.arguments)
    listing = OtherTool(tool="list_dir", arguments={"path": "src"})
    assert asked(listing, tool("list_dir", "path")) == ("list_dir", {"path": "src"})
    inside = OtherTool(tool="grep", arguments={"pattern": "", "path": SCRATCH})
    assert asked(inside, Tool("grep")) is None  # whose it is cannot be told, and the folder is not the caller's
    grep = OtherTool(tool="grep", arguments={"pattern": "x", "include": "*.py"})
    assert asked(grep, tool("grep", "pattern", "include")) == ("grep", grep.arguments)


# --- What is not translated -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        read_call("edit", {"path": "a.py", "streamContent": "x = 2\n"}),  # a whole text or a patch
        read_call("edit", {"path": "a.py", "strReplace": {"oldText": "", "newText": "x"}}),  # "" means all of the file
        read_call("edit", {"strReplace": {"oldText": "x", "newText": "y"}}),
        read_call("write", {"path": "a.py"}),
        read_call("write", {"fileText": "x"}),
        read_call("rename", {"oldPath": "a", "newPath": "b"}),
        read_call("delete", {"path": SCRATCH}),
        read_call("shell", {"command": " "}),
        read_call("read", {}),
        read_call("read", {"path": ""}),
        read_call("grep", {}),
        read_call("glob", {"targetDirectory": SCRATCH}),
        read_call("webSearch", {"searchTerm": "x"}),
        read_call("webFetch", {"url": "https://example.org"}),
        read_call("fetch", {"url": "https://example.org"}),
        read_call("updateTodos", {"todos": []}),
        read_call("createPlan", {}),
        read_call("askQuestion", {}),
        read_call("task", {"prompt": "x"}),
        Plan(tool="create_plan", title="", overview="", markdown="", todos=[]),
        Question(tool="ask_question", title="", questions=[]),
        TodoUpdate(tool="todo_write", todos=[]),
    ],
)
def test_what_has_no_counterpart_or_is_not_wholly_known_is_not_translated(action: Action) -> None:
    fetch = tool("fetch", "", "link")
    assert asked(action, *OPENCODE, fetch, tool("search", "q"), tool("delete", "path")) is None


def test_without_tools_nothing_is_translated() -> None:
    assert [translate(action, []) for action in (shell(), READ, GREP)] == [None] * 3


# --- Any schema -------------------------------------------------------------------------------------

NAMES = {
    "bash": ["command", "cmd", "commands", "args", "cwd", "directory"],
    "read": ["path", "file_path", "filePath", "files", "offset", "limit", "end_line"],
    "list": ["path", "dirPath", "ignore"],
    "grep": ["pattern", "query", "regex", "path", "include", "glob", "-i", "output_mode"],
    "glob": ["pattern", "glob", "path"],
    "edit": ["path", "old_string", "new_string", "edits"],
    "write": ["path", "content"],
    "delete": ["path", "paths"],
    "search_files": ["path", "pattern", "regex"],
    "weather": ["city"],
}
OTHERS = ["description", "requires_approval", "mode", "timeout", "cwd"]
LEAVES: list[Any] = [
    *(TEXT, NUMBER, FLAG, TEXTS, {}, True, False, {"type": "integer", "maximum": 3}, {"type": "null"}, FILES, EDITS),
    *({"enum": ["content", 1, None]}, {"const": "x"}, {"type": "string", "maxLength": 3}, {"type": ["string", "null"]}),
    *({"$ref": "#/$defs/Text"}, {"$ref": "#/$defs/Loop"}, {"$ref": "#"}, {"$ref": "#/$defs/Text/type"}),
    {"$ref": "#/$defs/Text/examples/0"},
    *({"type": "string", "default": 5}, {"type": "boolean", "default": True}, {"type": "array", "items": True}),
]
leaves = st.sampled_from(LEAVES)
nested = st.builds(
    lambda key, branches: {key: branches}, st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(leaves, min_size=1)
)
NO_SCHEMA = {"type": "nonsense", "enum": 5, "anyOf": 5, "$ref": 5, "properties": 5, "required": 5}
DEFINITIONS = {
    "$defs": {"Text": {**TEXT, "examples": [NO_SCHEMA]}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, TEXT]}}
}


@st.composite
def objects(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    text = st.just(TEXT)
    usual = {name: draw(st.one_of(text, text, text, leaves, nested)) for name in names if draw(st.integers(0, 3))}
    properties = usual | {name: draw(leaves | nested) for name in draw(st.lists(st.sampled_from(OTHERS), max_size=2))}
    required = [name for name in {**properties, "description": None} if not draw(st.integers(0, 3))]
    more = {"type": st.just("object"), "additionalProperties": st.booleans(), "minProperties": st.integers(0, 3)}
    return {"properties": properties, "required": required, **draw(st.fixed_dictionaries({}, optional=more))}


@st.composite
def offers(draw: st.DrawFn, names: list[str]) -> Tool:
    name = draw(st.sampled_from(names))
    schema = objects(NAMES[name])
    whole = schema | schema.map(lambda part: {"allOf": [part]}) | st.lists(schema).map(lambda parts: {"anyOf": parts})
    broken = st.dictionaries(st.sampled_from(["type", "properties", "required", "$ref"]), leaves | st.integers())
    return Tool(name, parameters={**draw(st.one_of(schema, schema, whole, broken)), **DEFINITIONS})


words = st.sampled_from(["", "x", ".", "/", "..", SCRATCH, f"{SCRATCH}/a", "a b", "echo 'é'"])
values = words | words | st.integers(-3, 3) | st.booleans() | st.none() | st.lists(words, max_size=2)
plain = {"bash": shell(where="/srv"), "read": READ, "list": LS, "grep": GREP, "glob": GLOB}
plain |= {"edit": EDIT, "write": WRITE, "delete": DELETE, "search_files": GREP}
plain |= {"weather": OtherTool(tool="caller-weather", arguments={"city": "Bern"})}
requests = st.one_of(
    st.builds(
        read_call,
        st.sampled_from(["shell", "read", "ls", "grep", "glob", "edit", "write", "delete", "mcp", "webFetch"]),
        st.dictionaries(
            st.sampled_from(
                [
                    *("command", "workingDirectory", "path", "offset", "limit", "pattern", "glob", "targetDirectory"),
                    *("globPattern", "fileText", "oldText", "newText", "toolName", "args", "ignore", "outputMode"),
                ]
            ),
            values,
        ),
    ),
    st.builds(lambda command, where: Command(tool="shell", command=command, working_directory=where), words, words),
    st.builds(
        lambda path, old, new: FileEdit(
            tool="edit",
            path=path,
            operation="edit",
            diff=Diff(old_string=old, new_string=new, start_line=1, end_line=1),
        ),
        *(words, words, words),
    ),
    st.builds(lambda given: OtherTool(tool="caller-weather", arguments=given), st.dictionaries(words, values)),
)


@st.composite
def meetings(draw: st.DrawFn) -> tuple[Action, list[Tool]]:
    """A request and tools, half of them such as may be meant."""
    kind = draw(st.sampled_from(list(NAMES)))
    tools = draw(st.lists(offers([kind] * len(NAMES) + list(NAMES)), min_size=1, max_size=3))
    return plain[kind] if draw(st.booleans()) else draw(requests), tools


@examples(500)
@given(meetings(), st.sampled_from(["", SCRATCH]))
def test_a_call_fits_its_tool_whatever_was_offered(meeting: tuple[Action, list[Tool]], scratch: str) -> None:
    action, tools = meeting
    found = translate(action, tools, scratch=scratch)
    if found is not None:
        chosen, arguments = found
        assert chosen in tools
        assert Draft202012Validator(chosen.parameters).is_valid(arguments)


# --- questions --------------------------------------------------------------------------------------

# As Claude Code 2.1 offers it, without the descriptions.
ASK = Tool(
    "AskUserQuestion",
    "",
    {
        "type": "object",
        "properties": {
            "questions": {
                "type": "array",
                "minItems": 1,
                "maxItems": 4,
                "items": {
                    "type": "object",
                    "properties": {
                        "question": {"type": "string"},
                        "header": {"type": "string", "maxLength": 12},
                        "options": {
                            "type": "array",
                            "minItems": 2,
                            "maxItems": 4,
                            "items": {
                                "type": "object",
                                "properties": {"label": {"type": "string"}, "description": {"type": "string"}},
                                "required": ["label", "description"],
                                "additionalProperties": False,
                            },
                        },
                        "multiSelect": {"type": "boolean"},
                    },
                    "required": ["question", "header", "options", "multiSelect"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["questions"],
        "additionalProperties": False,
    },
)


def question(*labels: str, several: bool = False) -> Action:
    options = [ClarificationOption(id=label, label=label) for label in labels]
    only = ClarificationQuestion(id="q", text="Which file is meant?", options=options, allow_multiple=several or UNSET)
    return Question(tool="ask_question", title="", questions=[only])


def test_a_question_is_ask_user_question() -> None:
    assert asked(question("a", "b", several=True), ASK) == (
        "AskUserQuestion",
        {
            "questions": [
                {
                    "question": "Which file is meant?",
                    "header": "Which file",
                    "options": [{"label": "a", "description": ""}, {"label": "b", "description": ""}],
                    "multiSelect": True,
                }
            ]
        },
    )


def test_a_question_that_the_tool_cannot_ask_is_not_asked() -> None:
    assert asked(question("a"), ASK) is None
    assert asked(question("a", "b"), tool("ask_user", "questions")) is None
