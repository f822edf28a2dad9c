"""A turn in; calls of tools, with what they really or seemingly did, out.

The shapes of arguments and results are those of builds from 2026.07 on.
"""

import os
import re
import time

from tests.agent.emitter import Call, Record, now
from tests.agent.turn import Turn, answers, call_id

SKIPPED = "Questions skipped by the user, continue with the information you already have"


@answers("tools")
def tools(turn: Turn) -> None:
    root = turn.workspace
    turn.say("I'll look around first.")
    turn.use(turn.call("read", {"path": f"{root}/notes.txt"}), _read(f"{root}/notes.txt", "alpha\nbeta\n"))
    _pretend_search(turn)
    turn.say("Now the changes.")
    before, after = "def price():\n    return 1\n", "def price():\n    return 2\n"
    _edit(turn, f"{root}/src/price.py", before, after)
    _edit(turn, f"{root}/src/tax.py", None, "RATE = 0.2\n")
    gone = {"path": f"{root}/old.txt", "deletedFile": f"{root}/old.txt", "fileSize": "4", "prevContent": "old\n"}
    turn.use(turn.call("delete", {"path": f"{root}/old.txt"}, names_itself=True), {"success": gone})
    turn.use(_shell(turn, "pytest -q"), _shell_result("pytest -q", 0, "2 passed in 0.02s\n", ""))
    turn.use(_shell(turn, "ruff check"), _shell_result("ruff check", 1, "", "src/tax.py:1:1: D100\n"))
    todos = [_todo("price", "Change the price", "COMPLETED"), _todo("tax", "Add the tax", "IN_PROGRESS")]
    update: Record = {"todos": todos, "merge": False}
    turn.use(turn.call("updateTodos", update), {"success": {"todos": todos, "totalCount": 2, "wasMerge": False}})
    turn.use(_mcp(turn, "tracker", "get_issue"), _mcp_result("Issue 7 is open."))
    turn.say("All done: the price is 2, and there is a tax.")


def _pretend_search(turn: Turn) -> None:
    root = turn.workspace
    grep: Record = {"pattern": "price", "path": root, "outputMode": "content", "caseInsensitive": False}
    line = {"lineNumber": 1, "content": "def price():", "contentTruncated": False, "isContextLine": False}
    cut: Record = {"clientTruncated": False, "ripgrepTruncated": False}
    matches = [{"file": "./src/price.py", "matches": [line]}]
    content: Record = {"matches": matches, "totalLines": 1, "totalMatchedLines": 1, **cut}
    found: Record = {"pattern": "price", "path": root, "outputMode": "content"}
    call = turn.call("grep", {**grep, "multiline": False}, names_itself=True)
    turn.use(call, {"success": {**found, "workspaceResults": {root: {"content": content}}}})
    glob = turn.call("glob", {"targetDirectory": root, "globPattern": "**/*.py"})
    turn.use(glob, {"success": {"pattern": "", "path": root, "files": ["src/price.py"], "totalFiles": 1, **cut}})
    source = _directory(f"{root}/src", [], ["price.py"])
    tree = _directory(root, [source], ["notes.txt", "old.txt"])
    listing = turn.call("ls", {"path": root, "ignore": []}, names_itself=True)
    turn.use(listing, {"success": {"directoryTreeRoot": tree}})


def _directory(path: str, below: list[Record], files: list[str]) -> Record:
    counts = {"." + name.rpartition(".")[2]: 1 for name in files}
    about: Record = {"childrenWereProcessed": True, "fullSubtreeExtensionCounts": counts, "numFiles": len(files)}
    return {"absPath": path, "childrenDirs": below, "childrenFiles": [{"name": name} for name in files], **about}


@answers("parallel")
def parallel(turn: Turn) -> None:
    turn.say("Running both at the same time.")
    slow, fast = (_shell(turn, command, id=call_id("gpt")) for command in ("sleep 6", "sleep 4"))
    turn.agent.start(slow)
    turn.agent.start(fast)
    turn.agent.complete(fast, _shell_result("sleep 4", 0, "", ""))
    turn.agent.complete(slow, _shell_result("sleep 6", 0, "", ""))
    turn.say("done")


@answers("shell")
def shell(turn: Turn) -> None:
    command = turn.text("command", turn.request.body.strip() or "echo standin-ran")
    turn.say("Running the command.")
    call = _shell(turn, command)
    turn.agent.start(call)
    if turn.read_only or not turn.permissions.permits_shell(simple_commands(command)):
        where: Record = {"command": command, "workingDirectory": turn.workspace}
        turn.agent.reject(call, {**where, "reason": "", "isReadonly": False})
        turn.say("The command was rejected.")
        return
    import subprocess  # here, because most runs start nothing and its import takes as long as Python's start

    environment = {
        **os.environ,
        "CURSOR_CONVERSATION_ID": turn.agent.session,
        "CURSOR_AGENT_CHAT_ID": turn.agent.session,
    }
    began = time.monotonic()
    done = subprocess.run(
        command,
        shell=True,
        cwd=turn.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
        check=False,
    )
    spent = int((time.monotonic() - began) * 1000)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    turn.agent.complete(call, _shell_result(command, done.returncode, out, err, spent))
    turn.say(f"It ended with {done.returncode}:\n\n```\n{out}{err}```")


def simple_commands(command: str) -> list[str]:
    return [one.strip() for one in re.split(r"&&|\|\||[;|&\n]", command) if one.strip()]


def _shell(turn: Turn, command: str, id: str = "") -> Call:
    id = id or call_id(turn.model)
    commands = simple_commands(command)
    parsed = [
        {
            "name": one.split()[0],
            "args": [{"type": "number" if word.isdigit() else "word", "value": word} for word in one.split()[1:]],
            "fullText": one,
        }
        for one in commands
    ]
    redirects = {"hasInputRedirect": "<" in command, "hasOutputRedirect": ">" in command}
    parsing: Record = {"parsingFailed": False, "executableCommands": parsed, "hasRedirects": any(redirects.values())}
    description = f"Run {commands[0].split()[0] if commands else 'nothing'}"
    args: Record = {
        "command": command,
        "workingDirectory": "",
        "timeout": 30000,
        "toolCallId": id,
        "simpleCommands": [one.split()[0] for one in commands],
        **redirects,
        "parsingResult": {**parsing, "hasCommandSubstitution": "$(" in command, "redirects": []},
        "fileOutputThresholdBytes": "40000",
        "isBackground": False,
        "skipApproval": False,
        "timeoutBehavior": "TIMEOUT_BEHAVIOR_BACKGROUND",
        "hardTimeout": 86400000,
        "description": description,
        "closeStdin": True,
        "conversationId": turn.agent.session,
        "adminCommandDenylist": [],
        "requestId": turn.agent.request,
    }
    return Call("shell", id, args, description)


def _shell_result(command: str, status: int, out: str, err: str, spent: int = 12) -> Record:
    ran: Record = {"command": command, "workingDirectory": "", "exitCode": status, "signal": ""}
    said: Record = {"stdout": out, "stderr": err, "executionTime": spent, "interleavedOutput": out + err}
    if status == 0:
        return {"success": {**ran, **said, "localExecutionTimeMs": spent}, "isBackground": False}
    return {"failure": {**ran, **said, "aborted": False}, "isBackground": False}


@answers("read")
def read(turn: Turn) -> None:
    path = turn.path("notes.txt")
    turn.say("Reading the file.")
    call = turn.call("read", {"path": path})
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            content = file.read()
    except OSError:
        turn.use(call, {"error": {"errorMessage": f"File not found: {path}"}})
        turn.say("There is no such file.")
        return
    turn.use(call, _read(path, content))
    turn.say(f"It has {len(content)} characters.")


def _read(path: str, content: str) -> Record:
    lines = content.count("\n") + 1
    about: Record = {"content": content, "isEmpty": not content, "exceededLimit": False, "totalLines": lines}
    place: Record = {"fileSize": len(content.encode()), "path": path, "readRange": {"startLine": 1, "endLine": lines}}
    return {"success": {**about, **place, "relatedCursorRulePaths": [], "relatedCursorRules": []}}


@answers("huge-line")
def huge_line(turn: Turn) -> None:
    size = turn.number("size", 5_000_000)
    path = f"{turn.workspace}/huge.txt"
    content = ("0123456789abcde\n" * (size // 16 + 1))[:size]
    turn.use(turn.call("read", {"path": path}), _read(path, content))
    turn.say("That was a long file.")


@answers("edit")
def edit(turn: Turn) -> None:
    path = turn.path("notes.txt")
    turn.say("Editing the file.")
    try:
        with open(path, encoding="utf-8") as file:
            before: str | None = file.read()
    except FileNotFoundError:
        before = None
    old, new = turn.text("old", ""), turn.text("new", "")
    after = (before or "").replace(old, new, 1) if old else turn.request.body or f"{before or ''}one more line\n"
    if turn.read_only or turn.permissions.denies("Write", turn.text("path", "notes.txt")):
        refused: Record = {"path": path, "error": "Write permission denied", "isReadonly": turn.read_only}
        turn.use(turn.call("edit", {"path": path}), {"writePermissionDenied": refused})
        turn.say("I may not write there.")
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(after)
    _edit(turn, path, before, after)
    turn.say("The file is changed.")


def _edit(turn: Turn, path: str, before: str | None, after: str) -> None:
    from difflib import unified_diff  # here: its import is slow

    # A new file is told as one empty line that was replaced: seen in 2026.07.20.
    old, new = (before or "\n").splitlines(), after.splitlines()
    origin = "/dev/null" if before is None else f"a/{path}"
    diff = list(unified_diff(old, new, origin, f"b/{path}", lineterm=""))
    added, removed = (sum(line.startswith(sign) for line in diff[2:]) for sign in "+-")
    whole: Record = {} if before is None else {"beforeFullFileContent": before}
    counts: Record = {"path": path, "linesAdded": added, "linesRemoved": removed, "diffString": "\n".join(diff)}
    told: Record = {**whole, "afterFullFileContent": after, "message": f"Wrote contents to {path}"}
    turn.use(turn.call("edit", {"path": path, "streamContent": after}), {"success": {**counts, **told}})


def _todo(id: str, content: str, status: str) -> Record:
    stamps = {"createdAt": str(now()), "updatedAt": str(now())}
    return {"id": id, "content": content, "status": f"TODO_STATUS_{status}", **stamps, "dependencies": []}


@answers("mcp")
def mcp(turn: Turn) -> None:
    server, tool = turn.text("server", "tracker"), turn.text("tool", "get_issue")
    turn.say("Asking the server.")
    call = _mcp(turn, server, tool)
    turn.agent.start(call)
    if turn.read_only or not turn.permissions.permits("Mcp", f"{server}:{tool}"):
        reason = f"MCP tool execution rejected by user: {server}-{tool} "
        turn.agent.reject(call, {"reason": reason, "isReadonly": False})
        turn.say("The server may not be asked.")
        return
    turn.agent.complete(call, _mcp_result("Issue 7 is open."))
    turn.say("The issue is open.")


def _mcp(turn: Turn, server: str, tool: str) -> Call:
    id = call_id(turn.model)
    args: Record = {"name": f"{server}-{tool}", "args": {"issue": 7}, "toolCallId": id}
    return Call("mcp", id, {**args, "providerIdentifier": server, "toolName": tool})


def _mcp_result(text: str) -> Record:
    return {"success": {"content": [{"text": {"text": text}}], "isError": False}}


@answers("web")
def web(turn: Turn) -> None:
    url = turn.text("url", "https://example.com")
    turn.say("Fetching the page.")
    call = turn.call("webFetch", {"url": url}, names_itself=True)
    turn.agent.start(call)
    allowed = turn.permissions.unrestricted
    turn.agent.ask("webFetchRequestQuery", {"args": call.args, "skipApproval": False}, _answer(allowed))
    if allowed:
        turn.agent.complete(call, {"success": {"url": url, "markdown": "# A page\n\nIt says little.\n"}})
        turn.say("The page is titled 'A page'.")
    else:
        turn.agent.reject(call, {"reason": "User Rejected"})
        turn.say("The page may not be fetched.")


def _answer(allowed: bool) -> Record:
    return {"approved": {}} if allowed else {"rejected": {"reason": "User Rejected"}}


@answers("websearch")
def websearch(turn: Turn) -> None:
    turn.say("Searching the web.")
    _search(turn)


@answers("query-flush")
def query_flush(turn: Turn) -> None:
    turn.agent.say("Searching, and said in one delta.")
    _search(turn)
    turn.say("Once more, in many.")
    _search(turn)


def _search(turn: Turn) -> None:
    """The query comes first. What is rejected then ends without having started: seen in 2026.09.10."""
    call = turn.call("webSearch", {"searchTerm": turn.text("term", "standin")}, names_itself=True)
    allowed = turn.permissions.unrestricted
    turn.agent.ask("webSearchRequestQuery", {"args": call.args}, _answer(allowed))
    if not allowed:
        turn.agent.reject(call, {"reason": "User Rejected"})
        turn.say("The search was rejected.")
        return
    references = [{"title": "A page", "url": "https://example.com", "chunk": "It says little."}]
    turn.use(call, {"success": {"references": references}})
    turn.say("There is one page.")


@answers("question")
def question(turn: Turn) -> None:
    turn.say("I need to know more.")
    choices = [{"id": name, "label": name} for name in ("notes.txt", "other.txt")]
    asked = {"id": "file", "prompt": "Which file is meant?", "options": choices, "allowMultiple": False}
    args: Record = {"title": "Which file?", "questions": [asked], "runAsync": False, "asyncOriginalToolCallId": ""}
    call = turn.call("askQuestion", args)
    skipped: Record = {"rejected": {"reason": SKIPPED}}
    turn.agent.ask("askQuestionInteractionQuery", {"args": args, "toolCallId": call.id}, {"result": skipped})
    turn.use(call, skipped)  # unlike other rejected calls, with its arguments: seen in 2026.09.15
    turn.say("Which file is meant: `notes.txt` or `other.txt`?")


@answers("plan")
def plan(turn: Turn) -> None:
    turn.say("I'll make a plan.")
    name = turn.text("name", "Move to Postgres")
    todos = [_todo("dump", "Dump the data", "PENDING"), _todo("load", "Load the data", "PENDING")]
    about: Record = {"overview": "Dump, load, switch", "name": name, "isProject": False, "phases": []}
    args: Record = {"plan": f"# {name}\n\nDump, load, switch.\n", "todos": todos, **about}
    call = turn.call("createPlan", args)
    made: Record = {"success": {}, "planUri": ""}
    turn.agent.ask("createPlanRequestQuery", {"args": args, "toolCallId": call.id}, {"result": made})
    turn.use(call, made)
