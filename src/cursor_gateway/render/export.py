"""Export a conversation with its answers as JSON, Markdown or plain text."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

import msgspec
from msgspec import UNSET

from cursor_gateway.model.documents import (
    ChatResponse,
    ClarificationDocument,
    CodeBlockDocument,
    CodeReferenceDocument,
    Diff,
    Document,
    ErrorDocument,
    FileEditDocument,
    PlanDocument,
    TerminalCommandDocument,
    TextDocument,
    ThinkingDocument,
    TodoStatus,
    TodoUpdateDocument,
    ToolCallDocument,
    ToolTrace,
    fenced,
    said_in,
)
from cursor_gateway.model.history import ConversationDetail, MessageEntry, RunEntry
from cursor_gateway.render.looks import OPERATIONS, answer_to, duration, line_range, line_runs, thinking
from cursor_gateway.render.visible import visible, visible_json, visible_line, visible_output
from cursor_gateway.stages.diffs import diff_lines
from cursor_gateway.stages.summary import main_argument

_DETAILS = 20  # lines of an error's details
_WHO: dict[Literal["user", "assistant"], str] = {"user": "You", "assistant": "Agent"}
_BOXES: dict[TodoStatus, str] = {
    "pending": "[ ]",
    "in_progress": "[ ] *(in progress)*",
    "completed": "[x]",
    "cancelled": "[x] *(cancelled)*",
}


class WholeConversation(ConversationDetail, frozen=True, kw_only=True, rename="camel"):
    """With the answers of its runs."""

    responses: list[ChatResponse]

    def prompts(self, run: RunEntry) -> list[MessageEntry]:
        """The prompt of the run, without its answer."""
        messages = [message for message in self.messages if message.chat_id == run.id]
        is_answered = run.state != "running" and messages[-1:] and messages[-1].role == "assistant"
        return messages[:-1] if is_answered else messages

    def response(self, run: RunEntry) -> ChatResponse | None:
        return next((response for response in self.responses if response.id == run.id), None)


def whole(detail: ConversationDetail, responses: Sequence[ChatResponse]) -> WholeConversation:
    return WholeConversation(**msgspec.structs.asdict(detail), responses=list(responses))


def as_json(conversation: WholeConversation) -> str:
    return visible_json(msgspec.json.format(msgspec.json.encode(conversation), indent=2)).decode() + "\n"


def as_text(conversation: WholeConversation) -> str:
    """Prompts and answers with their roles, without the actions."""
    said = []
    for run in conversation.runs:
        said += [
            message.note or f"{_WHO[message.role]}:\n\n{message.text.strip()}" for message in conversation.prompts(run)
        ]
        response = conversation.response(run)
        answer = [text for document in (response.documents if response else []) if (text := said_in(document))]
        if answer:
            said.append("\n\n".join([f"{_WHO['assistant']}:", *answer]))
    return "\n\n".join(said) + "\n"


def written(conversation: WholeConversation, form: str) -> str:
    """`form` is markdown, json or text."""
    return {"markdown": as_markdown, "json": as_json, "text": as_text}[form](conversation)


def as_markdown(conversation: WholeConversation) -> str:
    return "\n\n".join(part for part in _parts(conversation) if part) + "\n"


def answer_as_markdown(response: ChatResponse) -> str:
    """All that was said and done."""
    return "\n\n".join(part for part in _documents(response.documents) if part) + "\n"


# --- Markdown ---------------------------------------------------------------------------------------


def _parts(conversation: WholeConversation) -> Iterator[str]:
    yield f"# {_escaped(conversation.title)}"
    yield f"{_code(conversation.id)} · {_time(conversation.created)} · {_code(conversation.workspace)}"
    for run in conversation.runs:
        for message in conversation.prompts(run):
            if message.note:
                yield _escaped(message.note)
                continue
            yield f"## {_WHO[message.role]}"
            yield _quoted(message.text) if message.role == "user" else _closed(message.text)
        if (response := conversation.response(run)) is not None:
            yield f"## {_WHO['assistant']}"
            yield f"*{' · '.join(_facts(response))}*"
            yield from _documents(response.documents)


def _facts(response: ChatResponse) -> Iterator[str]:
    yield _escaped(response.model)
    yield response.mode
    took = duration(response.metadata.duration_ms)
    match response.status:
        case "streaming" if response.metadata.queue is not UNSET:
            yield "waiting to start"
        case "streaming":
            yield "still running"
        case "completed":
            yield f"completed in {took}" if took else "completed"
        case "error":
            yield f"failed after {took}" if took else "failed"
    yield f"{response.usage.prompt_tokens:,} tokens in, {response.usage.completion_tokens:,} out"


def _documents(documents: Sequence[Document]) -> Iterator[str]:
    """Tool calls that follow each other are one list."""
    for are_calls, group in groupby(documents, lambda document: isinstance(document, ToolCallDocument)):
        texts = map(_document, group)
        yield from ["\n".join(texts)] if are_calls else texts


def _document(document: Document) -> str:
    match document:
        case TextDocument(content=content):
            return _closed(content)
        case ThinkingDocument(content=content, metadata=metadata):
            return _quoted(f"*{thinking(metadata.duration_ms)}*\n\n{content}")
        case CodeBlockDocument(content=content, metadata=metadata):
            return fenced(metadata.language, visible(content))
        case CodeReferenceDocument(content=content, metadata=metadata):
            lines = line_range(metadata.start_line, metadata.end_line)
            return f"{_code(metadata.file_path)}, {lines}:\n\n{fenced(metadata.language, visible(content))}"
        case FileEditDocument():
            return _edit(document)
        case TerminalCommandDocument():
            return _command(document)
        case ToolCallDocument():
            return _call(document)
        case PlanDocument():
            return _plan(document)
        case ClarificationDocument():
            return _questions(document)
        case TodoUpdateDocument(metadata=metadata):
            todos = [
                f"- {_BOXES[todo.status]} {_inline(todo.id if todo.content is UNSET else todo.content)}"
                for todo in metadata.todos
            ]
            return "\n".join([f"**To-dos**{_ending(metadata)}", "", *todos])
        case ErrorDocument():
            return _error(document)


def _error(document: ErrorDocument) -> str:
    metadata = document.metadata
    quote = f"> {_code(metadata.error_code)}: {_inline(document.content)}"
    details = visible_output(metadata.details).strip()
    if "\n" not in details:
        return f"{quote} {_code(details)}" if details else quote
    last = details.split("\n")[-_DETAILS:]
    return "\n\n".join([quote, fenced("", "\n".join(last))])


def _edit(document: FileEditDocument) -> str:
    metadata, path = document.metadata, _code(document.metadata.file_path)
    content = visible(document.content or "").removesuffix("\n")
    change = [fenced(metadata.language, content)] if content else []
    match metadata.operation:
        case "edit" if metadata.diff is not UNSET:
            change = [fenced("diff", _diff(metadata.diff))]
        case "create" | "edit":
            pass
        case "delete":
            change = []
        case "rename":
            path, change = f"{_code(metadata.old_path or 'unknown')} to {path}", []
    return "\n\n".join([f"**{OPERATIONS[metadata.operation]}** {path}{_ending(metadata)}", *change])


def _diff(diff: Diff) -> str:
    """A unified diff, without the files' names."""
    old, new = diff_lines(diff, *map(visible, (diff.old_string, diff.new_string)))
    lines: list[str] = []
    for is_gap, group in groupby(line_runs(old, new), lambda run: run.sign == "⋮"):
        runs = list(group)
        if is_gap:
            continue
        before, after = (sum(len(run[side]) for run in runs if run.sign != sign) for side, sign in ((1, "+"), (2, "-")))
        first = diff.start_line + runs[0].old.start, diff.start_line + runs[0].new.start
        lines.append(f"@@ -{first[0]},{before} +{first[1]},{after} @@")
        for sign, old_lines, new_lines in runs:
            lines += [f"{sign}{old[number]}" for number in old_lines if sign == "-"]
            lines += [f"{sign}{new[number]}" for number in new_lines if sign != "-"]
    return "\n".join(lines)


def _command(document: TerminalCommandDocument) -> str:
    metadata = document.metadata
    output = visible_output(metadata.output).rstrip("\n")
    command = "\n> ".join(visible(metadata.command).strip().split("\n"))  # as a shell shows a second line
    session = fenced("console", f"$ {command}\n{output}" if output else f"$ {command}")
    if metadata.exit_code == -1:
        return f"{session}\n\n{_ending(metadata).strip() or '*ended without an exit status*'}"
    took = duration(metadata.duration_ms)
    return f"{session}\n\n*exit status {metadata.exit_code}{f', {took}' if took else ''}*"


def _call(document: ToolCallDocument) -> str:
    metadata = document.metadata
    about = visible_line(main_argument(metadata.arguments))
    return f"- {_code(metadata.tool_name)}{f' {_code(about)}' if about else ''}{_ending(metadata)}"


def _plan(document: PlanDocument) -> str:
    metadata = document.metadata
    todos = "\n".join(f"- {_BOXES[todo.status]} {_inline(todo.content)}" for todo in metadata.todos)
    parts = [f"**Plan: {_inline(metadata.title) or 'untitled'}**{_ending(metadata)}", _inline(metadata.overview)]
    return "\n\n".join(part for part in (*parts, _quoted(document.content) if document.content else "", todos) if part)


def _questions(document: ClarificationDocument) -> str:
    metadata = document.metadata
    lines = [f"**{_inline(document.content or 'The agent asks')}**{_ending(metadata)}", ""]
    for number, question in enumerate(metadata.questions, 1):
        lines.append(f"{number}. {_inline(question.text)}")
        chosen, said = answer_to(question, metadata)
        lines += [
            f"   - [{'x' if option.id in chosen else ' '}] {_inline(option.label)}" for option in question.options
        ]
        if said:
            lines.append(f"   - {_inline(said)}")
    return "\n".join(lines)


def _ending(trace: ToolTrace) -> str:
    """How a tool ended, where it did not simply complete."""
    if trace.state is UNSET:
        return ""
    reason = f": {_inline(trace.reason)}" if trace.reason else ""
    return f" *({trace.state.replace('_', ' ')}{reason})*"


# --- text within Markdown ---------------------------------------------------------------------------


def _closed(markdown: str) -> str:
    """A fence that the agent left open would swallow all that follows."""
    from markdown_it import MarkdownIt

    markdown = visible(markdown).strip("\n")
    last = MarkdownIt("commonmark").parse(f"{markdown}\n\nx")[-1]
    return f"{markdown}\n{last.markup}" if last.type == "fence" else markdown


def _quoted(text: str) -> str:
    """Nothing in the text can end the quotation."""
    return "\n".join(f"> {line}".rstrip() for line in visible(text).strip("\n").split("\n"))


def _code(text: str) -> str:
    text = visible_line(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    if not longest:
        return f"`{text}`"
    mark = "`" * (longest + 1)
    return f"{mark} {text} {mark}"


def _inline(text: str) -> str:
    """What the agent writes is Markdown of its own, but not HTML: `List<String>` is common in prose."""
    return re.sub(r"(`+[^`]*`+)|<", lambda found: found[1] or r"\<", visible_line(text))


def _escaped(text: str) -> str:
    """In one line, without any formatting."""
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", visible_line(text))


def _time(time: str) -> str:
    return f"{time[:10]} {time[11:16]} UTC"
