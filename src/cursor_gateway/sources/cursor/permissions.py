"""Find the rules that would allow a rejected call, in the form of the agent's own configuration.

`Shell(git)` allows the command `git` with any arguments, which is the narrowest rule that every build understands.
Names are checked: what the agent writes must not become a wider rule than the one that is shown.
"""

import re
import shlex
from collections.abc import Sequence

from cursor_gateway.model.actions import Outcome
from cursor_gateway.model.documents import PermissionRequest
from cursor_gateway.wire.payload import Fields

_RULE = re.compile(r"(Shell|Write|Read|Mcp|WebFetch)\((.+)\)", re.DOTALL)
BREAK = re.compile(r"&&|\|\||[;|&\n]")  # between the simple commands of a line
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
_BEFORE_A_COMMAND = frozenset(["!", "{", "if", "then", "elif", "else", "do", "while", "until", "time"])
_NO_COMMAND = frozenset(["}", "for", "case", "done", "fi", "esac"])
_PROGRAM = re.compile(r"[\w./+@%~-]+")
_NAME = re.compile(r"[\w.-]+")
HOST = re.compile(r"https?://(?:[^/?#@\\\s]*@)?([^/:?#@\\\s]+)(?:[/:?#]|\Z)")
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
            host = found[1] if (found := HOST.match(url)) else ""
            return _request(url, "WebFetch", [host], _NAME)
        case _:
            return None


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
    return PermissionRequest(subject=subject, rules=[f"{kind}({name})" for name in names])
