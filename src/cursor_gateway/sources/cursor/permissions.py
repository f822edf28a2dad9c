"""Find the rules that would allow a rejected call, in the form of the agent's own configuration.

`Shell(git)` allows the command `git` with any arguments, which is the narrowest rule that every build understands.
Names are checked: what the agent writes must not become a wider rule than the one that is shown.
"""

import re
import shlex
from collections.abc import Sequence

from msgspec import UNSET

from cursor_gateway.model.agent_events import Outcome
from cursor_gateway.model.documents import PermissionRequest
from cursor_gateway.wire.payload import Fields

_RULE = re.compile(r"(Shell|Write|Read|Mcp|WebFetch)\((.+)\)", re.DOTALL)
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
_BEFORE_A_COMMAND = frozenset(["!", "{", "if", "then", "elif", "else", "do", "while", "until", "time"])
_NO_COMMAND = frozenset(["}", "for", "case", "done", "fi", "esac"])
_PROGRAM = re.compile(r"[\w./+@%~-]+")
_NAME = re.compile(r"[\w.-]+")
# Programs that read URLs disagree about anything else: user names, backslashes, blanks, escapes, dots at the end.
_LABEL = "[a-z0-9_-]+"
_URL = re.compile(rf"https?://({_LABEL}(?:\.{_LABEL})*)(?::[0-9]{{1,5}})?(?:[/?#][!-~]*)?", re.IGNORECASE)
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")  # an IPv4 address in one of its forms
_IPV4 = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!\Z)|\Z)){4}")
_RUNS_OTHERS = re.compile(
    r"""(?x)
    \.|source|eval|exec|command|builtin|
    (?:ba|z|da|k|c|tc|fi|a|pw)?sh|nu|busybox|
    env|sudo|doas|su|runuser|chroot|nohup|nice|ionice|timeout|time|setsid|stdbuf|script|watch|flock|strace|xargs|parallel|
    find|fd|ssh|docker|podman|kubectl|tmux|screen|at|batch|
    python[0-9.]*|pypy[0-9.]*|node|nodejs|deno|bun|ruby|perl|php|lua[0-9.]*|tclsh|osascript|[gmn]?awk|
    npx|bunx|uvx|pipx|vi|vim|nvim|emacs|ed|make
    """
)
_WARNING = "{names} can run any other program. A rule for it allows everything; allow it once instead."
_MOST = 20  # simple commands in a line
_LONGEST = 10_000  # characters of a command line: nobody reads more before allowing it


def wrong_rules(rules: Sequence[str]) -> list[str]:
    """Those that are not valid rules."""
    return [rule for rule in rules if not _RULE.fullmatch(rule)]


def parsed(rules: Sequence[str], kind: str) -> list[str]:
    """What is in the parentheses of the rules of this kind."""
    found = [_RULE.fullmatch(rule) for rule in rules]
    return [rule[2] for rule in found if rule and rule[1] == kind]


def needed(tool: str, args: object) -> PermissionRequest | None:
    """What must be allowed for this call, by Cursor's name of the tool. None: no rule can allow it."""
    fields = Fields(args)
    match tool:
        case "shell":
            return _shell(fields.text("command"))
        case "mcp":
            return _mcp(fields)
        case "webFetch":
            url = fields.text("url")
            return _request(url, "WebFetch", [host_of(url)], _NAME)
        case _:
            return None


def host_of(url: str) -> str:
    """In lower case; empty unless every program finds the same host in the URL."""
    found = _URL.fullmatch(url)
    host = found[1].lower() if found else ""
    return "" if _NUMERIC.fullmatch(host) and not _IPV4.fullmatch(host) else host


def explained(outcome: Outcome, request: PermissionRequest | None) -> Outcome:
    """A rejection, with what would prevent it. The agent's own reason blames the user, who was not asked."""
    if request is None or outcome.state != "rejected":
        return outcome
    rules = " and ".join(f"`{rule}`" for rule in request.rules)
    return Outcome(
        state="rejected",
        code="NOT_ALLOWED",
        message=f"Not run: no rule allows it. Allow it, or add {rules} to the setting `allow`.",
        details=outcome.details,
        duration_ms=outcome.duration_ms,
        permission=request,
    )


def _shell(command: str) -> PermissionRequest | None:
    if len(command) > _LONGEST:
        return None
    try:
        programs = _programs(command)
    except ValueError:  # an open quote
        return None
    return _request(command, "Shell", list(dict.fromkeys(programs)), _PROGRAM)


def _programs(command: str) -> list[str]:
    """The first word of each simple command, after assignments such as `CI=1`. Raises `ValueError`."""
    words = shlex.shlex(command, posix=True, punctuation_chars="();<>|&\n")
    words.whitespace, words.commenters, words.whitespace_split = " \t\r", "", True
    found: list[str] = []
    is_first, is_file, has_document = True, False, False
    for word in words:
        if set(word) <= set("();<>|&\n") and word:
            if has_document and "\n" in word:
                break  # the text of a here-document
            has_document = has_document or "<<" in word
            is_file = "<" in word or ">" in word
            is_first = is_first or not is_file
        elif is_file:
            is_file = False
        elif is_first and not _ASSIGNMENT.fullmatch(word) and word not in _BEFORE_A_COMMAND:
            is_first = False
            if word not in _NO_COMMAND:
                found.append(word)
    return found


def _mcp(args: Fields) -> PermissionRequest | None:
    tool, server = args.text("toolName"), args.text("providerIdentifier", "serverIdentifier", "server")
    if tool and not server:
        server = args.text("name").removesuffix(f"-{tool}")
    if not _NAME.fullmatch(server):
        return None
    found = _request(tool, "Mcp", [tool], _NAME)
    return found and PermissionRequest(subject=f"{server}: {tool}", rules=[f"Mcp({server}:{tool})"])


def _request(subject: str, kind: str, names: Sequence[str], valid: re.Pattern[str]) -> PermissionRequest | None:
    if not 0 < len(names) <= _MOST or not all(valid.fullmatch(name) for name in names):
        return None
    wide = [name for name in names if kind == "Shell" and _RUNS_OTHERS.fullmatch(name.rpartition("/")[2])]
    warning = _WARNING.format(names=" and ".join(f"`{name}`" for name in wide)) if wide else UNSET
    return PermissionRequest(subject=subject, rules=[f"{kind}({name})" for name in names], warning=warning)
