"""The errors, their messages and their remedies in; the troubleshooting page out."""

from collections.abc import Iterator

from cursor_gateway.dialects.errors import error_body, for_retrying_clients
from cursor_gateway.dialects.messages.shapes import error_response
from cursor_gateway.errors import GatewayError
from cursor_gateway.sources.cursor import tools
from cursor_gateway.sources.cursor.command import INSTALL_COMMAND
from tools.reference.markdown import page, table
from tools.reference.remedies import GROUPS, TOOL_CODES, Remedy
from tools.reference.sentences import Said, said, sentences
from tools.reference.table_pages import error_classes

_MOST = 20  # messages of an error: longer lists help nobody find theirs
_COMMANDS = ("Trouble", "NotInstalled")


def troubleshooting_page() -> str:
    errors = {error.code: error for error in error_classes()}
    remedies = {code: remedy for group in GROUPS.values() for code, remedy in group.items()}
    if wrong := set(errors) ^ set(remedies):
        raise SystemExit(f"tools/reference/remedies.py must have exactly the codes of errors.py; see {sorted(wrong)}")
    found = said({*(error.__name__ for error in errors.values()), *_COMMANDS, "Finding"})
    return page(
        "Troubleshooting",
        "Start with `cursor-gateway doctor`. It checks the agent, its login, the port, the folders and the limits of\n"
        "this machine, and says how to fix what it finds. It changes nothing and calls no model.",
        "## Common problems",
        _COMMON,
        "## Find the error code",
        "Every error has a stable code. Where it is depends on the API:",
        table(["where", "the code"], _WHERE),
        *(part for title, group in GROUPS.items() for part in _group(title, group, errors, found)),
        "## Failed tools",
        "A failed tool does not fail the run. The agent sees the error and usually tries something else.",
        table(["`errorCode`", "cause", "what to do"], [(f"`{code}`", *row) for code, row in _tool_codes().items()]),
        "## Errors of the command line",
        "A command that cannot start prints one line, `cursor-gateway: …`, and ends with status 2. If a run fails,\n"
        "the status is 1. `launch` ends with 127 if the client is not installed. A `…` stands for a value.",
        table(["message", "what to do"], _command_rows(found)),
        "## Findings of `doctor`",
        "`✗` must be fixed before runs can work, `!` is a warning. A `…` stands for a value.",
        table(["check", "finding", "what to do"], _doctor_rows(found)),
    )


_COMMON = f"""\
**Answers come from a demo.** The banner says `DEMO`, and the only model is `demo`: the agent is not installed. Install
it, log in, and restart the gateway:

```sh
{INSTALL_COMMAND}
cursor-agent login
cursor-gateway doctor
```

**A command was not run.** The document says "Not run: no rule allows it." The agent runs only what a rule allows. Allow
it on the page, in `chat` or with `serve --allow`: see [Allowing commands](permissions.md).

**The agent works in the wrong folder.** It works where `serve` was started, or in `serve --workspace DIR`. Clients can
name other folders only if they are in `workspace_roots`.

**The error stays after I logged in.** The gateway remembers login errors and usage limits for a minute
(`account_error_seconds`). Run `cursor-gateway doctor`, which clears them.

**Connection refused.** No gateway listens there. Start one with `cursor-gateway serve`, and check the port.

**The port is in use.** Another program, or another gateway, has port 8787. Use `serve --port 0` for a free one.

**Another machine cannot connect.** By default only this machine can. Create a key with `cursor-gateway key NAME`, then
use `serve --host 0.0.0.0`: see [Security and limits](server.md#security-and-limits).

**Text arrives in blocks, not word by word.** Either the agent is too old (`cursor-gateway doctor` says so under
"abilities"), or a proxy buffers the stream: turn buffering off for the gateway."""

_WHERE = [
    (
        "`/v1/chat`, `/v1/chat/completions`, `/v1/responses`",
        "`error.code`; `error.param` names the field that is wrong",
    ),
    ("an `error` document in a running answer", "`metadata.errorCode`, in capitals"),
    ("`/v1/messages`", "`error.type`, listed with each code below; the message says which of them it is"),
    ("the Python client", "`CallFailed.code`"),
    ("the gateway's log", "`code`, on the line with the reply's `x-request-id`"),
]


def _group(
    title: str, group: dict[str, Remedy], errors: dict[str, type[GatewayError]], found: list[Said]
) -> Iterator[str]:
    yield f"## {title}"
    for name, remedy in group.items():
        yield f"### {name}"
        yield _facts(errors[name])
        yield f"**Cause:** {remedy.cause}"
        yield f"**What to do:** {remedy.fix}"
        messages = [*remedy.also, *sentences(found, errors[name].__name__)]
        if 0 < len(messages) <= _MOST:
            yield "\n".join(["Messages:", "", *(f"- {message}" for message in messages)])


def _facts(error: type[GatewayError]) -> str:
    failure = error("").failure()
    shown = for_retrying_clients(failure)
    others = "" if shown.status == error.status else f" ({shown.status} outside the documents API)"
    kinds = f"OpenAI type `{error_body(shown).type}`, Anthropic type `{error_response(shown).error.type}`"
    hint = "Retry: this may be temporary." if failure.is_transient else "Sending the same request again does not help."
    return f"HTTP {error.status}{others}, {kinds}. {hint}"


def _tool_codes() -> dict[str, tuple[str, str]]:
    reported = {*tools.CODES.values(), "TOOL_ERROR"} - {"REJECTED"}
    if wrong := reported ^ set(TOOL_CODES):
        raise SystemExit(f"tools/reference/remedies.py must have exactly the tool errors; see {sorted(wrong)}")
    return TOOL_CODES


def _command_rows(found: list[Said]) -> list[tuple[str, str]]:
    rows: dict[str, str] = {}
    for message in sorted({message for name in _COMMANDS for message in sentences(found, name)}):
        what, separator, do = message.partition("; ")
        if separator and len(what.replace("…", "").split()) > 2:
            rows[_capital(what)] = max(rows.get(_capital(what), ""), _capital(do), key=len)
    return sorted(rows.items(), key=lambda row: row[0].lstrip("…` ").casefold())


def _doctor_rows(found: list[Said]) -> list[tuple[str, str, str]]:
    rows = set()
    for finding in found:
        if finding.name == "Finding" and len(finding.texts) == 4 and finding.texts[0] != "good":
            _, subject, what, advice = finding.texts
            if subject != "…":
                rows.add((subject, _or_as_shown(what), _capital(_or_as_shown(advice))))
    return sorted(rows)


def _or_as_shown(text: str) -> str:
    """Some texts are made of values alone."""
    return text if len(text.replace("…", "").split()) > 1 else "as shown"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
