"""A tool of the agent's own and its arguments in; what it really did, or why it may not, out.

Reads, edits and deletions run unless they are denied, commands only if they are allowed, pages the same. A tool that
`--allowed-tools` leaves out is rejected. Nothing here is printed: whoever starts a call also ends it.
"""

import os
import re
import time
from _collections_abc import Callable, Iterator  # without `collections`, which takes longer

from tests.agent.emitter import Call, Record
from tests.agent.turn import Turn, call_id

NOT_AVAILABLE = "Tool is not available"
_MOST_FILES = 2000
_DEPTH = 3
_PAGE_SECONDS = 5


class Outcome:
    """A result as the wire has it, and what a model would read."""

    def __init__(self, result: Record, text: str) -> None:
        self.result = result
        self.text = text


class Job:
    """A call, and what carries it out: perhaps in a thread, so it prints nothing."""

    def __init__(self, call: Call, work: Callable[[], Outcome]) -> None:
        self.call = call
        self.work = work

    def start(self, turn: Turn) -> None:
        turn.agent.start(self.call)


class Fetch(Job):
    """The program asks itself after the call's start."""

    def __init__(self, call: Call, work: Callable[[], Outcome], allowed: bool) -> None:
        super().__init__(call, work)
        self._allowed = allowed

    def start(self, turn: Turn) -> None:
        super().start(turn)
        query: Record = {"args": self.call.args, "skipApproval": False}
        turn.agent.ask("webFetchRequestQuery", query, web_answer(self._allowed))


def native(turn: Turn, tool: str, args: Record) -> Job:
    """`args` in the wire's names; a path may be relative to the workspace."""
    work = lambda: refusal(turn, tool, args) or _TOOLS[tool](turn, args)  # noqa: E731
    match tool:
        case "shell":
            return Job(shell_call(turn, _text(args, "command"), where=_text(args, "workingDirectory")), work)
        case "webFetch":
            allowed = refusal(turn, tool, args) is None
            return Fetch(turn.call(tool, args, names_itself=True), work, allowed)
        case _:
            named: Record = {name: place(turn, args, name) for name in args if name in ("path", "targetDirectory")}
            names_itself = tool in ("ls", "grep", "delete", "write")
            return Job(turn.call(tool, {**args, **named}, names_itself=names_itself), work)


def refusal(turn: Turn, tool: str, args: Record) -> Outcome | None:
    """Why the tool may not be used so, in the form that its result has for that."""
    if not turn.tools.has(tool):
        return Outcome({"rejected": {"reason": NOT_AVAILABLE, "isReadonly": False}}, NOT_AVAILABLE)
    path = place(turn, args)
    if blocked := _blocked(turn, tool, args, path):
        return blocked
    match tool:
        case "shell":
            command = _text(args, "command")
            if not turn.read_only and turn.permissions.permits_shell(simple_commands(command)):
                return None
            where: Record = {"command": command, "workingDirectory": place(turn, args, "workingDirectory")}
            return Outcome({"rejected": {**where, "reason": "", "isReadonly": False}}, "rejected")
        case "webFetch":
            if turn.permissions.permits("WebFetch", _host(_text(args, "url"))):
                return None
            return Outcome({"rejected": {"reason": "User Rejected"}}, "User Rejected")
        case "edit" | "write" | "delete":
            if not turn.read_only and not _denied(turn, "Write", path):
                return None
            said = "Write permission denied"
            about: Record = {"path": path, "isReadonly": turn.read_only}
            if tool == "delete":
                return Outcome({"permissionDenied": {**about, "clientVisibleError": said}}, said)
            return Outcome({"writePermissionDenied": {"path": path, "error": said, "isReadonly": turn.read_only}}, said)
        case _:
            searched = place(turn, args, "targetDirectory") if tool == "glob" else path
            return _unreadable(tool, searched) if _denied(turn, "Read", searched) else None


# The tools of hooks that a tool fires: an edit reads first.
_HOOKED = {
    "shell": ("Shell",),
    "read": ("Read",),
    "ls": ("LS",),
    "grep": ("Grep",),
    "glob": ("Grep",),
    "delete": ("Delete",),
    "edit": ("Read", "Write"),
    "write": ("Read", "Write"),
}


def _blocked(turn: Turn, tool: str, args: Record, path: str) -> Outcome | None:
    told: Record = {"file_path": path}
    if tool == "shell":
        told = {"command": _text(args, "command"), "cwd": _text(args, "workingDirectory"), "timeout": 30000}
    for name in _HOOKED.get(tool, ()):
        if reason := turn.blocked(name, told):
            return _blocked_outcome(tool, args, path, reason)
    return None


def _blocked_outcome(tool: str, args: Record, path: str, reason: str) -> Outcome:
    match tool:
        case "shell":
            where: Record = {"command": _text(args, "command"), "workingDirectory": _text(args, "workingDirectory")}
            return Outcome({"rejected": {**where, "reason": reason, "isReadonly": False}}, reason)
        case "read":
            return Outcome({"error": {"errorMessage": reason}}, reason)
        case "ls" | "delete":
            return Outcome({"rejected": {"path": path, "reason": reason}}, reason)
        case "edit" | "write":
            return Outcome({"error": {"path": path, "error": reason}}, reason)
        case _:
            return Outcome({"error": {"error": reason}}, reason)


def _unreadable(tool: str, path: str) -> Outcome:
    said = f"Read permission denied: {path}"
    match tool:
        case "ls":
            return Outcome({"rejected": {"path": path, "reason": said}}, said)
        case "read":
            return Outcome({"error": {"errorMessage": said}}, said)
        case _:
            return Outcome({"error": {"error": said}}, said)


def _denied(turn: Turn, kind: str, path: str) -> bool:
    """Rules name files from the workspace, or from the root."""
    return any(turn.permissions.denies(kind, name) for name in (path, os.path.relpath(path, turn.workspace)))


def place(turn: Turn, args: Record, name: str = "path") -> str:
    return os.path.normpath(os.path.join(turn.workspace, _text(args, name)))


def _text(args: Record, name: str) -> str:
    value = args.get(name, "")
    return value if isinstance(value, str) else str(value)


# commands


def simple_commands(command: str) -> list[str]:
    return [one.strip() for one in re.split(r"&&|\|\||[;|&\n]", command) if one.strip()]


def shell_call(turn: Turn, command: str, *, id: str = "", where: str = "") -> Call:
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
        "workingDirectory": where,
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


class Ran:
    """What a command left behind."""

    def __init__(self, status: int, out: str, err: str, spent: int = 12) -> None:
        self.status = status
        self.out = out
        self.err = err
        self.spent = spent


def run_command(turn: Turn, command: str, where: str = "") -> Ran:
    import subprocess  # here, because most runs start nothing and its import takes as long as Python's start

    session = dict.fromkeys(("CURSOR_CONVERSATION_ID", "CURSOR_AGENT_CHAT_ID"), turn.agent.session)
    began = time.monotonic()
    done = subprocess.run(
        command,
        shell=True,
        cwd=os.path.join(turn.workspace, where),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **session},
        check=False,
    )
    spent = int((time.monotonic() - began) * 1000)
    return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), spent)


def shell_result(command: str, ran: Ran, where: str = "") -> Record:
    reply: Record = {"command": command, "workingDirectory": where, "exitCode": ran.status, "signal": ""}
    said: Record = {"stdout": ran.out, "stderr": ran.err, "executionTime": ran.spent}
    said["interleavedOutput"] = ran.out + ran.err
    if ran.status == 0:
        return {"success": {**reply, **said, "localExecutionTimeMs": ran.spent}, "isBackground": False}
    return {"failure": {**reply, **said, "aborted": False}, "isBackground": False}


def _shell(turn: Turn, args: Record) -> Outcome:
    command, where = _text(args, "command"), _text(args, "workingDirectory")
    try:
        ran = run_command(turn, command, where)
    except OSError as error:
        return Outcome({"spawnError": {"command": command, "workingDirectory": where, "error": str(error)}}, str(error))
    return Outcome(shell_result(command, ran, where), ran.out + ran.err)


# files


def _read(turn: Turn, args: Record) -> Outcome:
    path = place(turn, args)
    content = content_of(path)
    if content is None:
        said = f"File not found: {path}"
        return Outcome({"error": {"errorMessage": said}}, said)
    return Outcome(read_result(path, content), content)


def read_result(path: str, content: str) -> Record:
    lines = content.count("\n") + 1
    about: Record = {"content": content, "isEmpty": not content, "exceededLimit": False, "totalLines": lines}
    where: Record = {"fileSize": len(content.encode()), "path": path, "readRange": {"startLine": 1, "endLine": lines}}
    return {"success": {**about, **where, "relatedCursorRulePaths": [], "relatedCursorRules": []}}


def content_of(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def overwrite(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def edit_result(path: str, before: str | None, after: str) -> Record:
    from difflib import unified_diff  # here: its import is slow

    # A new file is told as one empty line that was replaced: seen in 2026.07.20.
    old, new = (before or "\n").splitlines(), after.splitlines()
    origin = "/dev/null" if before is None else f"a/{path}"
    diff = list(unified_diff(old, new, origin, f"b/{path}", lineterm=""))
    added, removed = (sum(line.startswith(sign) for line in diff[2:]) for sign in "+-")
    whole: Record = {} if before is None else {"beforeFullFileContent": before}
    counts: Record = {"path": path, "linesAdded": added, "linesRemoved": removed, "diffString": "\n".join(diff)}
    reply: Record = {**whole, "afterFullFileContent": after, "message": f"Wrote contents to {path}"}
    return {"success": {**counts, **reply}}


def _edit(turn: Turn, args: Record) -> Outcome:
    path, after = place(turn, args), _text(args, "streamContent")
    before = content_of(path)
    try:
        overwrite(path, after)
    except OSError as error:
        return Outcome({"error": {"path": path, "error": str(error)}}, str(error))
    return Outcome(edit_result(path, before, after), f"Wrote contents to {path}")


def _write(turn: Turn, args: Record) -> Outcome:
    path, text = place(turn, args), _text(args, "fileText")
    try:
        overwrite(path, text)
    except OSError as error:
        return Outcome({"error": {"path": path, "error": str(error)}}, str(error))
    wrote: Record = {"path": path, "linesCreated": len(text.splitlines()), "fileSize": len(text.encode())}
    return Outcome({"success": wrote}, f"Wrote contents to {path}")


def _delete(turn: Turn, args: Record) -> Outcome:
    path = place(turn, args)
    if os.path.isdir(path):
        return Outcome({"notFile": {"path": path, "actualType": "directory"}}, f"Not a file: {path}")
    before = content_of(path)
    if before is None:
        return Outcome({"fileNotFound": {"path": path}}, f"File not found: {path}")
    try:
        size = os.path.getsize(path)
        os.unlink(path)
    except OSError as error:
        return Outcome({"error": {"path": path, "error": str(error)}}, str(error))
    gone: Record = {"path": path, "deletedFile": path, "fileSize": str(size), "prevContent": before}
    return Outcome({"success": gone}, f"Deleted {path}")


# searches


def _ls(turn: Turn, args: Record) -> Outcome:
    path = place(turn, args)
    if not os.path.isdir(path):
        said = f"Not a directory: {path}"
        return Outcome({"error": {"path": path, "error": said}}, said)
    names = sorted(f"{one.name}/" if one.is_dir() else one.name for one in os.scandir(path))
    return Outcome({"success": {"directoryTreeRoot": _tree(path, _DEPTH)}}, "\n".join(names))


def _tree(path: str, depth: int) -> Record:
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name) if depth else []
    except OSError:
        entries = []
    directories = [_tree(one.path, depth - 1) for one in entries if one.is_dir(follow_symlinks=False)]
    return directory_node(path, directories, [one.name for one in entries if one.is_file()])


def directory_node(path: str, below: list[Record], files: list[str]) -> Record:
    counts = {"." + name.rpartition(".")[2]: 1 for name in files}
    about: Record = {"childrenWereProcessed": True, "fullSubtreeExtensionCounts": counts, "numFiles": len(files)}
    return {"absPath": path, "childrenDirs": below, "childrenFiles": [{"name": name} for name in files], **about}


def _files(turn: Turn, path: str) -> Iterator[str]:
    """Those below a directory that may be read, or the file itself; not for ever."""
    found = [path] if os.path.isfile(path) else []
    for directory, below, names in os.walk(path):
        below[:] = sorted(name for name in below if name != ".git")
        found += [os.path.join(directory, name) for name in sorted(names)]
        if len(found) > _MOST_FILES:
            break
    yield from (file for file in found if not _denied(turn, "Read", file))


def _grep(turn: Turn, args: Record) -> Outcome:
    path, pattern = place(turn, args), _text(args, "pattern")
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        return Outcome({"error": {"error": str(error)}}, str(error))
    matches: list[Record] = []
    lines: list[str] = []
    for file in _files(turn, path):
        content = (content_of(file) or "") if os.path.isfile(file) else ""  # a pipe would keep us waiting
        found = [(number, line) for number, line in enumerate(content.splitlines(), 1) if wanted.search(line)]
        name = os.path.relpath(file, turn.workspace)
        flags: Record = {"contentTruncated": False, "isContextLine": False}
        reply = [{"lineNumber": number, "content": line, **flags} for number, line in found]
        matches += [{"file": f"./{name}", "matches": reply}] if reply else []
        lines += [f"{name}:{number}:{line}" for number, line in found]
    counts: Record = {"totalLines": len(lines), "totalMatchedLines": len(lines)}
    content_found: Record = {"matches": matches, **counts, "clientTruncated": False, "ripgrepTruncated": False}
    about: Record = {"pattern": pattern, "path": path, "outputMode": "content"}
    result: Record = {"success": {**about, "workspaceResults": {turn.workspace: {"content": content_found}}}}
    return Outcome(result, "\n".join(lines))


def _glob(turn: Turn, args: Record) -> Outcome:
    from fnmatch import fnmatch

    root, pattern = place(turn, args, "targetDirectory"), _text(args, "globPattern")
    names = [os.path.relpath(file, root) for file in _files(turn, root)]
    plain = pattern.removeprefix("**/")
    found = [name for name in names if fnmatch(name, plain) or fnmatch(name, f"*/{plain}")]
    cut: Record = {"clientTruncated": False, "ripgrepTruncated": False}
    result: Record = {"success": {"pattern": "", "path": root, "files": found, "totalFiles": len(found), **cut}}
    return Outcome(result, "\n".join(found))


# pages


def web_answer(allowed: bool) -> Record:
    return {"approved": {}} if allowed else {"rejected": {"reason": "User Rejected"}}


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].partition(":")[0]


def _web_fetch(_: Turn, args: Record) -> Outcome:
    from urllib.request import urlopen  # here: its import is slow

    url = _text(args, "url")
    try:
        with urlopen(url, timeout=_PAGE_SECONDS) as page:
            text: str = page.read().decode(errors="replace")
    except (OSError, ValueError) as error:
        return Outcome({"error": {"url": url, "error": str(error)}}, str(error))
    return Outcome({"success": {"url": url, "markdown": text}}, text)


_TOOLS: dict[str, Callable[[Turn, Record], Outcome]] = {
    "shell": _shell,
    "read": _read,
    "edit": _edit,
    "write": _write,
    "delete": _delete,
    "ls": _ls,
    "grep": _grep,
    "glob": _glob,
    "webFetch": _web_fetch,
}
NATIVES = frozenset(_TOOLS)
