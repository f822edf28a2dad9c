"""Render a document as an `article`: the same for a page, the end of a stream and an exported file.

An article's `data-part`s are what a live page replaces or appends to; its `aria-label` is its name.
"""

import json
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from msgspec import UNSET

from cursor_gateway.errors import errors_by_code
from cursor_gateway.model import documents
from cursor_gateway.render.html import code, markdown
from cursor_gateway.render.html.code import change, coloured_output, creation
from cursor_gateway.render.html.pieces import (
    exact,
    exact_line,
    label,
    literal,
    plain,
    prose,
    prose_line,
    span,
)
from cursor_gateway.render.looks import OPERATIONS, answer_to, duration, thinking
from cursor_gateway.render.visible import visible, visible_output
from cursor_gateway.stages.summary import main_argument

_OUTPUT = 15  # lines of a command's output that are shown at first
_ABOUT = 160  # characters of what a tool was called with
_RUN_LEVEL = ("agent", "gateway")  # sources of errors that are not a tool's
_MARKS = {"completed": "✓", "running": "●", "waiting": "●"}
_PLAIN_NOTE = '<p class="ending">Shown as plain text, because formatting it took too long.</p>'
_CODE = re.compile(r"`([^`\n]+)`")
_TOOLS = {  # what people call them; others have their own name
    "read_file": "Read file",
    "list_dir": "List folder",
    "glob_file_search": "Find files",
    "grep": "Search",
    "codebase_search": "Search code",
    "web_search": "Search the web",
    "web_fetch": "Fetch page",
    "fetch": "Fetch page",
    "read_lints": "Check for problems",
    "todo_read": "Read to-dos",
    "task": "Subtask",
}


def article(document: documents.Document, todos: str, *, answerable: bool = True, as_plain: bool = False) -> str:
    """`todos` is the list of a plan or of a change of one; what asks somebody and is not `answerable` is only shown.

    `as_plain`: in time that is linear in its length, without colours, Markdown and comparisons.
    """
    html = _any_article(document, todos, answerable, _PLAIN if as_plain else _FORMATTED)
    trace = document.metadata
    if (
        answerable
        and isinstance(trace, documents.ToolTrace)
        and trace.permission
        and trace.state in ("rejected", "waiting")
    ):
        html = html.removesuffix(_END) + _permission(document.id, trace.permission) + _END
    return html.replace(">\n", f">\n{_PLAIN_NOTE}", 1) if as_plain else html  # after the article's own tag


class _Look(NamedTuple):
    blocks: Callable[[str], str]
    line: Callable[[str], str]
    json: Callable[[Any], str]
    is_plain: bool

    def language(self, name: str) -> str:
        """What code is highlighted as."""
        return "" if self.is_plain else name


def _any_article(document: documents.Document, todos: str, answerable: bool, look: _Look) -> str:
    match document:
        case (
            documents.TextDocument(content=content, metadata=metadata)
            | documents.ThinkingDocument(content=content, metadata=metadata)
        ):
            if metadata.format == "plain":
                return prose_article(document, plain(content))
            return prose_article(
                document, look.blocks(markdown.continued(content) if continues_item(document) else content)
            )
        case documents.CodeBlockDocument(content=content) | documents.CodeReferenceDocument(content=content):
            part = code.highlighted(content, look.language(document.metadata.language))
            return code_article(document, code.numbers(content, first_line(document)), code.code_part(part))
        case documents.FileEditDocument():
            return _file_edit(document, look)
        case documents.TerminalCommandDocument():
            return _command(document)
        case documents.ToolCallDocument():
            return _tool_call(document, look)
        case documents.PlanDocument():
            return _plan(document, todos, look)
        case documents.TodoUpdateDocument(metadata=metadata):
            return _article(document, "To-dos", _head("To-dos") + todos + _ending(metadata))
        case documents.ClarificationDocument():
            return _clarification(document, answerable, look)
        case documents.ErrorDocument():
            return _error(document)


def _article(document: documents.Document, name: str, body: str, kind: str = "", **data: str | int) -> str:
    """`name` is text, `body` is HTML; `data` are attributes, which scripts read."""
    type = documents.document_type(document.metadata)
    trace = document.metadata
    state = f' data-state="{exact(trace.state)}"' if isinstance(trace, documents.ToolTrace) and trace.state else ""
    more = "".join(f' data-{key}="{exact_line(str(value))}"' for key, value in data.items())
    return (
        f'<article class="document {type}{kind}" id="{exact(document.id)}" data-type="{type}"'
        f' data-sequence="{document.sequence}"{state}{more} aria-label="{label(name)}">\n{body}{_END}'
    )


def _head(what: str, *more: str) -> str:
    """HTML, as is what `more` there is to say."""
    return f"<header>{span(what, 'what')}{''.join(more)}</header>"


def _badge(trace: documents.ToolTrace) -> str:
    """How a tool ended, where it did not simply complete."""
    if not trace.state or trace.state == "completed":
        return ""
    if trace.state == "waiting" and isinstance(trace, documents.ClarificationMetadata | documents.PlanMetadata):
        return span("waiting for you", "state")
    if trace.state == "rejected" and trace.permission:
        return span("needs permission", "state")
    return span(exact(trace.state.replace("_", " ")), "state")


_END = "\n</article>\n"
_QUIET = ' class="quiet"'
_DECIDED = {
    "once": "allowed once",
    "conversation": "allowed in this conversation",
    "workspace": "allowed in this workspace",
    "deny": "denied",
}
_DECISIONS = {
    "once": "Allow once",
    "conversation": "Always in this conversation",
    "workspace": "Always in this workspace",
}


def _permission(id: str, request: documents.PermissionRequest) -> str:
    """The form is only shown where a decision is possible."""
    buttons = "".join(
        f'<button type="submit" name="decision" value="{value}"{_QUIET if value != "once" else ""}>{words}</button>'
        for value, words in _DECISIONS.items()
        if value == "once" or request.rules
    )
    rules = ", ".join(map(literal, request.rules))
    note = f'<p class="note">“Always” adds the rule {rules}.</p>' if rules else ""
    if request.warning:
        note += f'<p class="note warning">{_message(request.warning)}</p>'
    return (
        f'<form class="permission" data-permission="{exact(id)}">{note}{buttons}'
        '<div class="deny"><button type="submit" name="decision" value="deny" class="quiet">Deny</button>'
        '<input type="text" name="reason" aria-label="Reason" placeholder="Reason (optional)" autocomplete="off"></div>'
        "</form>"
    )


def _ending(trace: documents.ToolTrace) -> str:
    """The same with the reason."""
    reason = f" {_message(trace.reason)}" if trace.reason else ""
    badge = _badge(trace)
    return f'<p class="ending">{badge}{reason}</p>' if badge else ""


# --- prose and code ---------------------------------------------------------------------------------


def continues_item(document: documents.TextDocument | documents.ThinkingDocument) -> bool:
    """Whether it follows code in a list item, and so belongs to that item."""
    return document.sequence > 1 and isinstance(document, documents.TextDocument) and document.content.startswith("  ")


def prose_article(document: documents.TextDocument | documents.ThinkingDocument, html: str) -> str:
    body = f'<div class="prose{" continued" if continues_item(document) else ""}">{html}</div>'
    if isinstance(document, documents.ThinkingDocument):
        name = thinking(document.metadata.duration_ms)
        return _article(document, "Thinking", f"<details><summary>{name}</summary>{body}</details>")
    return _article(document, "Text", body)


def code_article(
    document: documents.CodeBlockDocument | documents.CodeReferenceDocument, numbers: str, part: str
) -> str:
    """The code part may be another than the document's: it grows on a live page."""
    if isinstance(document, documents.CodeBlockDocument):
        language = document.metadata.language
        name, caption = f"Code, {language}", code.language_label(language)
    else:
        path, first, last = document.metadata.file_path, document.metadata.start_line, document.metadata.end_line
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        name, caption = f"{path}, {lines}", f"{literal(path, 'path')}{span(lines, 'note')}"
    indent = document.metadata.indent or 0
    depth = {"depth": str(markdown.list_depth(indent))} if indent > 1 else {}
    return _article(document, name, code.figure(caption, code.framed(numbers, part)), **depth)


def first_line(document: documents.CodeBlockDocument | documents.CodeReferenceDocument) -> int:
    return document.metadata.start_line if isinstance(document, documents.CodeReferenceDocument) else 1


def code_part(document: documents.CodeBlockDocument | documents.CodeReferenceDocument) -> str:
    return code.code_part(code.highlighted(document.content, document.metadata.language))


# --- tools ------------------------------------------------------------------------------------------


def _file_edit(document: documents.FileEditDocument, look: _Look) -> str:
    metadata, content = document.metadata, document.content or ""
    what = OPERATIONS[metadata.operation] if metadata.state is UNSET else metadata.operation.capitalize()
    head = [span(what, "what"), literal(metadata.file_path, "path")]
    body, lines = "", (0, 0)
    if metadata.operation == "rename":
        head.append(span(f"was {literal(metadata.old_path or 'unknown', 'path')}", "note"))
    if metadata.operation == "create":
        created = creation(content, look.language(metadata.language))
        head += [created.counts, code.COPY if content else ""]
        body, lines = created.html, (created.added, 0)
    elif metadata.diff:
        changed = change(metadata.diff, look.language(metadata.language), compares=not look.is_plain)
        head.append(changed.counts)
        body, lines = changed.html, (changed.added, changed.removed)
    elif content:
        body = code.listing(content, look.language(metadata.language))
    body = f"<figcaption>{''.join(head)}</figcaption>{body}{_ending(metadata)}"
    return _article(
        document,
        f"{what} {metadata.file_path}",
        f'<figure class="code">{body}</figure>',
        path=metadata.file_path,
        operation=metadata.operation,
        added=lines[0],
        removed=lines[1],
    )


def _command(document: documents.TerminalCommandDocument) -> str:
    metadata = document.metadata
    command = visible(metadata.command).strip()
    output = coloured_output(metadata.output.rstrip())
    took = duration(metadata.duration_ms)
    if metadata.state in (UNSET, "completed", "failed") and metadata.exit_code != -1:
        good = metadata.exit_code == 0
        ending = span(f"{'✓' if good else '✗'} exit {metadata.exit_code}", "good" if good else "bad")
    else:
        ending = _badge(metadata) or span("ended without an exit status", "bad")
        if metadata.reason:
            ending += span(_message(metadata.reason), "reason")
        if metadata.state == "rejected":
            took = ""  # it did not run
    where = literal(metadata.working_directory, "path") if metadata.working_directory else ""
    allowed = span(f"with {prose_line(', '.join(metadata.permissions))}", "note") if metadata.permissions else ""
    body = (
        f'<figure class="terminal"><figcaption>{span("Terminal", "what")}{where}{allowed}{code.COPY}</figcaption>'
        f'<pre class="command"><span aria-hidden="true">$ </span><code data-part="code">{exact(command)}</code></pre>'
        + (f'{_output_fold(output)}<pre class="output" tabindex="0"><code>{output}</code></pre>' if output else "")
        + f'<p class="ending">{ending}{span(took, "note")}</p></figure>'
    )
    return _article(document, f"Command {command}", body, exit=metadata.exit_code)


def _output_fold(output: str) -> str:
    """Only the end is shown at first: that is where a failure is."""
    lines = output.count("\n") + 1
    return f'<details class="fold"><summary>Show all {lines:,} lines</summary></details>' if lines > _OUTPUT else ""


def _tool_call(document: documents.ToolCallDocument, look: _Look) -> str:
    metadata = document.metadata
    state = metadata.state or "completed"
    about = main_argument(metadata.arguments)
    facts = [duration(metadata.duration_ms), "run by the caller" if metadata.ran_by == "caller" else ""]
    summary = (
        f'<span class="mark" aria-hidden="true">{_MARKS.get(state, "✗")}</span>{_tool_name(metadata.tool_name)}'
        f"{literal(about[:_ABOUT], 'about') if about else ''}{_badge(metadata)}"
        f"{span(' · '.join(filter(None, facts)), 'note')}"
    )
    data = metadata.result.data
    parts = [
        _named("Arguments", look.json(metadata.arguments)) if metadata.arguments else "",
        _named("Result", data if isinstance(data, str) else look.json(data)) if data not in (None, "") else "",
        f'<p class="ending">{_message(metadata.reason)}</p>' if metadata.reason else "",
    ]
    body = "".join(parts) or '<p class="ending">No details.</p>'
    return _article(
        document,
        f"Tool {metadata.tool_name}",
        f'<details><summary>{summary}</summary><div class="inside">{body}</div></details>',
    )


def _tool_name(name: str) -> str:
    known = _TOOLS.get(name)
    return f'<span class="tool" title="{name}">{known}</span>' if known else literal(name, "tool")


def _named(name: str, text: str) -> str:
    return f'<p class="label">{name}</p><pre class="value" tabindex="0"><code>{exact(text)}</code></pre>'


def _pretty(value: Any, indent: int | None = 2) -> str:
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"


# --- plans, questions, errors -----------------------------------------------------------------------


def _plan(document: documents.PlanDocument, todos: str, look: _Look) -> str:
    metadata = document.metadata
    title = metadata.title or "untitled"
    overview = f'<p class="overview">{look.line(metadata.overview)}</p>' if metadata.overview else ""
    text = document.content.removeprefix(f"# {title}\n")  # its heading is above already
    content = f'<div class="prose">{look.blocks(text)}</div>' if text.strip() else ""
    head = _head("Plan", f"<h3>{prose_line(title)}</h3>")
    accepted = '<p class="ending" data-accepted>Accepted.</p>' if metadata.accepted is True else ""
    return _article(document, f"Plan {title}", head + overview + content + todos + accepted + _ending(metadata))


def _clarification(document: documents.ClarificationDocument, answerable: bool, look: _Look) -> str:
    metadata = document.metadata
    if metadata.permission and not metadata.answers:
        asks = (
            f"{_head('Permission', _badge(metadata))}<p>The agent wants to run:</p>{plain(metadata.permission.subject)}"
        )
        return _article(document, "Permission", asks)
    if metadata.permission:
        return _article(document, "Permission", _decided(metadata, metadata.permission))
    waits = metadata.state == "waiting"
    note = span("answered", "state") if metadata.answers else _badge(metadata) if waits else ""
    asks = f'{_head("Question", note)}<div class="prose">{_asked(document, look)}</div>'
    questions = _form(document, look) if answerable else _answers(metadata, look)
    return _article(document, "Question", asks + questions + ("" if waits else _ending(metadata)))


def _decided(metadata: documents.ClarificationMetadata, asked: documents.PermissionRequest) -> str:
    chosen = [_DECIDED.get(id, id) for answer in metadata.answers or [] for id in answer.selected_option_ids]
    said = [answer.text for answer in metadata.answers or [] if answer.text]
    reason = f'<p class="note">{prose(" ".join(said))}</p>' if said else ""
    head = _head("Permission", span(exact_line(", ".join(chosen)), "state"))
    return f"{head}<p>The agent wanted to run:</p>{plain(asked.subject)}{reason}"


def _asked(document: documents.ClarificationDocument, look: _Look) -> str:
    return look.blocks(document.content) if document.content else "<p>The agent asks:</p>"


def _answers(metadata: documents.ClarificationMetadata, look: _Look) -> str:
    """To read, in a page without forms."""
    shown = ""
    for question in metadata.questions:
        chosen, said = answer_to(question, metadata)
        options = "".join(
            f"<li>{look.line(option.label)}{' ' + span('chosen', 'state') if option.id in chosen else ''}</li>"
            for option in question.options
        )
        shown += f"<p><strong>{look.line(question.text)}</strong></p>"
        shown += (f"<ul>{options}</ul>" if options else "") + (f"<p>{prose(said)}</p>" if said else "")
    return f'<div class="prose">{shown}</div>' if shown else ""


def _form(document: documents.ClarificationDocument, look: _Look) -> str:
    metadata = document.metadata
    is_open = not metadata.answers
    questions = "".join(
        _question(document, number, question, is_open, look) for number, question in enumerate(metadata.questions, 1)
    )
    send = '<button type="submit">Answer</button>' if is_open else ""
    return f'<form data-answer="{exact(document.id)}">{questions}{send}</form>' if questions else ""


def _question(
    document: documents.ClarificationDocument,
    number: int,
    question: documents.ClarificationQuestion,
    answerable: bool,
    look: _Look,
) -> str:
    chosen, said = answer_to(question, document.metadata)
    several = question.allow_multiple is True
    group = f"{exact(document.id)}-{number}"
    off = "" if answerable else " disabled"
    options = "".join(
        f'<label><input type="{"checkbox" if several else "radio"}" name="{group}" value="{exact(option.id)}"'
        f"{' checked' if option.id in chosen else ''}{off}><span>{look.line(option.label)}</span></label>"
        for option in question.options
    )
    words = "Something else" if question.options else "Your answer"
    text = (
        f'<label class="words"><span>{words}</span><input type="text" name="{group}-text" value="{exact_line(said)}"'
        f' autocomplete="off"{off}></label>'
        if answerable or said
        else ""
    )
    hint = span("choose any that apply", "note") if several else ""
    return (
        f'<fieldset data-question="{exact(question.id)}"><legend>{look.line(question.text)}{hint}</legend>'
        f"{options}{text}</fieldset>"
    )


def _error(document: documents.ErrorDocument) -> str:
    """A tool's error repeats what the tool's own document says; the page hides it."""
    metadata = document.metadata
    if metadata.error_code == "CANCELLED":
        return _article(document, "Stopped", f'<p class="message">{_message(document.content)}</p>', " stopped")
    message = document.content.strip() or "It failed without a message."
    facts = [
        literal(metadata.error_code) if metadata.error_code else "",
        span(f"from {exact_line(metadata.source)}", "note") if metadata.source else "",
    ]
    advice = '<p class="advice">This may be temporary. Retry.</p>' if metadata.error_code in _retryable_codes() else ""
    details = visible_output(metadata.details).strip()
    shown = f'<pre class="value" tabindex="0"><code>{exact(details)}</code></pre>' if details else ""
    body = f'{_head("Error", *facts)}<p class="message">{_message(message)}</p>{advice}{shown}'
    of = "run" if metadata.source in _RUN_LEVEL else "tool"
    return _article(document, f"Error {metadata.error_code}", body, of=of)


def _message(text: str) -> str:
    """A sentence, with its names in code."""
    return _CODE.sub(r"<code>\1</code>", prose(text))


@cache
def _retryable_codes() -> frozenset[str]:
    return frozenset(code.upper() for code, kind in errors_by_code().items() if kind.retryable)


_FORMATTED = _Look(markdown.render, markdown.render_line, _pretty, is_plain=False)
_PLAIN = _Look(plain, prose_line, partial(_pretty, indent=None), is_plain=True)
