"""What rules allow: a call in; whether it is allowed, why not, and which rules would allow it, out.

Rules are written as in the agent's own configuration: `Shell(git)`, `Write(src/**)`, `Read(**)`, `Mcp(server:tool)`,
`WebFetch(example.com)`. Anything that cannot be parsed is not allowed by a rule. `Shell(git)` allows the command `git`
with any arguments, which is the narrowest rule that every build understands. Names are checked: what the agent writes
must not become a wider rule than the one that is shown.
"""

import re
import shlex
from collections.abc import Collection, Sequence
from posixpath import join, normpath, relpath
from typing import Any, Literal

from msgspec import UNSET, Struct

from cursor_gateway.model.agent_events import Outcome
from cursor_gateway.model.documents import Mode, PermissionRequest
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


# --- Command lines: the plain commands in them, if every shell reads them as that and nothing more ---
# The agent gives the line to the user's shell: bash, zsh, dash or fish. Each of them has its own ways to start another
# program, or to change the next one: substitutions, zsh's `=(…)` and glob qualifiers, arithmetic in the arguments of
# builtins, assignments, functions, aliases. No list of these is ever complete. So the grammar says what is allowed:
#
#     line     command { ("&&" | "||" | ";" | "|") command }
#     command  name { word }          names of builtins and keywords are refused, except a few that evaluate nothing
#     word     { bare | 'text' | "text" }
#
# Bare characters have no meaning in any shell. Quoted text has none of the characters that are special within quotes,
# and no `$` or backtick: a builtin could evaluate them later.

_BLANKS = re.compile(" *")
_OPERATOR = re.compile(r"&&|\|\||;|\|")
_COMMAND_NAME = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@%-]*(?=[ ;|&]|\Z)")
_WORD = re.compile(r"""(?!=)(?:[A-Za-z0-9_./+@%:,=-]|'[^'"$`\\!]*'|"[^"'$`\\!]*")+(?=[ ;|&]|\Z)""")

# Builtins and keywords of bash 5.2, zsh 5.9, dash 0.5 and fish 3.6 (`tests/sources/test_shells.py` compares).
_BUILTIN_NAMES = """
    ! - . : [ [[ ]] _ abbr alias and argparse autoload begin bg bind bindkey block break breakpoint builtin bye caller
    case chdir command commandline compadd comparguments compcall compctl compdescribe compfiles compgen compgroups
    complete compopt compquote compset comptags comptry compvalues contains continue coproc count declare dirs disable
    disown do done echotc echoti elif else emit emulate enable end esac eval exec exit export fc fg fi float for
    foreach function functions fish_indent fish_key_reader getln getopts hash help history if in integer jobs kill let
    limit local log logout mapfile math nocorrect noglob not or path popd print printf private pushd pushln r random
    read readarray readonly realpath rehash repeat return sched select set set_color setopt shift shopt source status
    string suspend switch test then time times trap ttyctl type typeset ulimit umask unalias unfunction unhash unlimit
    unset unsetopt until vared wait whence where which while zcompile zformat zle zmodload zparseopts zregexparse
    zstyle { }
"""
BUILTINS = frozenset(_BUILTIN_NAMES.split())


def plain_commands(line: str) -> list[str] | None:
    """Each with single spaces between its words, which are as they were written. None: it is more than that."""
    found, place = list[str](), 0
    while True:
        words, place = _words(line, place)
        if not words or words[0] in BUILTINS:
            return None
        found.append(" ".join(words))
        if place == len(line):
            return found
        if (operator := _OPERATOR.match(line, place)) is None:
            return None
        place = operator.end()


def _words(line: str, place: int) -> tuple[list[str], int]:
    """And where they end."""
    words: list[str] = []
    while True:
        start = _blanks_end(line, place)
        found = (_WORD if words else _COMMAND_NAME).match(line, start)
        if found is None or not found[0].isprintable():
            return words, start
        words.append(found[0])
        place = found.end()


def _blanks_end(line: str, place: int) -> int:
    found = _BLANKS.match(line, place)
    assert found is not None  # it matches nothing, too
    return found.end()


# --- Calls that a rule allows ----------------------------------------------------------------------

_COLON = re.compile(r"^([^\s:]+):")  # after the name of a program; an argument may have one, too


def is_allowed_command(command: str, rules: Sequence[str]) -> bool:
    """Whether the line has plain commands only, and each is allowed."""
    patterns = parsed(rules, "Shell")
    if not command.strip() or command.endswith("…"):
        return False
    if "*" in patterns:
        return True
    commands = plain_commands(command)
    return commands is not None and all(any(_is_command(pattern, one) for pattern in patterns) for one in commands)


def _is_command(pattern: str, command: str) -> bool:
    """`Shell(git)`, `Shell(git status)` and `Shell(curl:*)` match the command with any arguments."""
    pattern = _COLON.sub(r"\1 ", pattern).removesuffix(" *")
    return _matches(pattern, command, ".*") or _matches(f"{pattern} *", command, ".*")


def is_allowed_path(kind: Literal["Read", "Write"], path: str, rules: Sequence[str], workspace: str) -> bool:
    if not path:
        return False
    patterns = parsed(rules, kind)
    whole = normpath(join(workspace, path))
    inside = relpath(whole, workspace)
    names = [whole] if inside.startswith("..") else [whole, inside]
    return any(_matches(pattern, name, "[^/]*") for pattern in patterns for name in names)


def is_allowed_tool(server: str, tool: str, rules: Sequence[str]) -> bool:
    """An unknown server is empty: only a rule for all servers allows its tools."""
    for pattern in parsed(rules, "Mcp"):
        its_server, _, its_tool = ("*:*" if pattern == "*" else pattern).partition(":")
        if _matches(its_server, server, ".*") and _matches(its_tool, tool, ".*"):
            return True
    return False


def is_allowed_page(url: str, rules: Sequence[str]) -> bool:
    host = host_of(url)
    return bool(host) and any(_matches(pattern.lower(), host, ".*") for pattern in parsed(rules, "WebFetch"))


def _matches(pattern: str, name: str, star: str) -> bool:
    """`**` matches anything; `*` anything within one path component."""
    parts = re.split(r"(\*\*/?|\*)", pattern)
    expression = "".join(star if part == "*" else ".*" if part.startswith("**") else re.escape(part) for part in parts)
    return re.fullmatch(expression, name, re.DOTALL) is not None


# --- Calls that the agent's hook asks about --------------------------------------------------------
# Cursor's servers are told which tools a run may use, but the agent's runtime executes whatever they send. So what is
# denied is denied here as well.

MCP = "MCP:"  # before the name of a server's tool
_READING = frozenset({"Read", "Grep", "List", "LS", "Glob"})
_WRITING = frozenset({"Write", "Delete", "Edit"})

_UNKNOWN = "The gateway does not know this run."


class Policy(Struct, frozen=True, kw_only=True):
    """What a run may do."""

    force: bool  # everything
    mode: Mode = "agent"
    is_confined: bool = False  # to the caller's tools
    rules: Sequence[str] = ()
    user_tool: str = ""  # with which the agent asks its user, in any mode; no other tool has this name
    data: str  # the gateway's own folder, without links, which no tool may change

    @property
    def may_ask(self) -> bool:
        """Whether there is anything that a person could allow."""
        return not self.force and not self.is_confined and self.mode not in ("ask", "plan")

    def is_users(self, tool: str) -> bool:
        return bool(self.user_tool) and tool == f"{MCP}{self.user_tool}"


class AskedCall(Struct, frozen=True):
    """What the hook is told."""

    conversation: str  # the agent's session
    tool: str
    args: Any
    place: str  # the file or folder that it names, without links; empty if there is none
    workspace: str = ""  # without links
    server: str = ""  # of an MCP tool; the hook is not told, so this comes from elsewhere


class Refusal(Struct, frozen=True):
    """Why a call is not allowed."""

    reason: str
    request: PermissionRequest | None = None  # what a person could allow; None: nobody can


def refusal(call: AskedCall, policy: Policy) -> Refusal | None:
    """None: it is allowed."""
    tool = call.tool
    if policy.is_users(tool):
        return None
    if policy.is_confined:
        return None if tool.startswith(MCP) else Refusal("This run may use only the tools of its caller.")
    if policy.mode in ("ask", "plan"):
        return None if tool in _READING else Refusal(f"The mode `{policy.mode}` only reads.")
    if policy.force or tool in _READING:
        return None
    if tool in _WRITING:
        is_own = f"{call.place}/".startswith(f"{policy.data}/")
        return Refusal("These files belong to the gateway.") if is_own or not call.place else None
    args = Fields(call.args)
    if tool == "Shell":
        command = args.text("command")
        if is_allowed_command(command, policy.rules):
            return None
        return _unruled("command", "Shell(…)", needed("shell", {"command": command}), command)
    if tool.startswith(MCP):
        name = tool.removeprefix(MCP)
        if is_allowed_tool(call.server, name, policy.rules):
            return None
        about = {"toolName": name, "providerIdentifier": call.server}
        return _unruled("tool", f"Mcp({call.server or '*'}:{name})", needed("mcp", about), name)
    if tool == "WebFetch":
        url = args.text("url")
        if is_allowed_page(url, policy.rules):
            return None
        return _unruled("page", "WebFetch(…)", needed("webFetch", {"url": url}), url or tool)
    return Refusal(f"The gateway does not know the tool {tool}.", PermissionRequest(subject=tool, rules=[]))


def common_refusal(call: AskedCall, policies: Collection[Policy]) -> Refusal | None:
    """For a call of one of several runs, of which it is not known which: all of them must allow it."""
    if not policies:
        return Refusal(_UNKNOWN)
    return next((found for policy in policies if (found := refusal(call, policy)) is not None), None)


def _unruled(what: str, rule: str, request: PermissionRequest | None, subject: str) -> Refusal:
    return Refusal(
        f"Not run: no rule allows this {what}. Allow it, or add `{rule}` to the setting `allow`.",
        request or PermissionRequest(subject=subject, rules=[]),
    )
