"""Show a response as the result of a tool, as text and as structured content; and report what the agent does."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from cursor_gateway.model import document_events, documents
from cursor_gateway.stages.summary import in_one_line, one_line

_MOST_ACTIONS = 50  # the last ones
_LONGEST = 4_000  # characters of a text that is not the agent's own, such as a file that it read
_KEPT = 1_500  # of the beginning and of the end of a longer one
_WAIT_SECONDS = 60  # some hosts allow a tool little more
_OPEN = ("waiting", "unanswered", "rejected")


def tool_result(response: documents.ChatResponse, *, message: str = "") -> dict[str, Any]:
    """As `tools/call` returns it. `message`: why the call failed; the response is then what was done before."""
    texts = [*([message] if message else []), text_of(response)]
    return {
        "content": [{"type": "text", "text": text} for text in texts],
        "structuredContent": structured(response),
        "isError": bool(message),
    }


def failed_result(message: str) -> dict[str, Any]:
    """Of a call without a run."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def task_result(response: documents.ChatResponse) -> dict[str, Any]:
    """Of a run that has ended."""
    last = response.documents[-1] if response.documents else None
    is_error = response.status == "error" and isinstance(last, documents.ErrorDocument)
    return tool_result(response, message=last.content if last is not None and is_error and last.content else "")


def structured(response: documents.ChatResponse) -> dict[str, Any]:
    """The response as over HTTP, with long outputs and files cut: a model would have to read them.

    Some hosts show their model nothing but this, so it begins with the state of the run and what to do next.
    """
    content: dict[str, Any] = msgspec.to_builtins(response)
    for document in content["documents"]:
        document["metadata"] = _cut(document["metadata"])
        if document["type"] == "file_edit":
            document["content"] = _cut(document["content"])
    step = _joined(_next_steps(response))
    return {"summary": _joined(_summary(response)), **({"nextStep": step} if step else {}), **content}


def _cut(value: Any) -> Any:
    match value:
        case str() if len(value) > _LONGEST:
            return f"{value[:_KEPT]}\n… {len(value) - 2 * _KEPT:,} characters left out …\n{value[-_KEPT:]}"
        case dict():
            return {name: _cut(below) for name, below in value.items()}
        case list():
            return [_cut(below) for below in value]
        case _:
            return value


def text_of(response: documents.ChatResponse) -> str:
    """What was said, what was done, what is open, and the ids."""
    return _joined(_parts(response))


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def _parts(response: documents.ChatResponse) -> Iterator[str]:
    demo, *state = _summary(response)
    yield demo
    yield response.text.strip()
    actions = [f"- {line}" for document in response.documents if (line := one_line(document))]
    if actions:
        yield "\n".join(["Actions:", *actions[-_MOST_ACTIONS:]])
    yield from state
    yield from _next_steps(response)


def _summary(response: documents.ChatResponse) -> list[str]:
    """Whether it is a demo, what went wrong, and the state of the run."""
    demo = "DEMO: this answer is a recording. No agent ran, and no files were changed."
    last = response.documents[-1] if response.documents else None
    is_error = response.status == "error" and isinstance(last, documents.ErrorDocument)
    return [
        demo if response.metadata.recording else "",
        f"Error: {last.content}" if last is not None and is_error else "",
        f"Run {response.id} {_state(response)}; conversation {response.conversation_id}.",
    ]


def _next_steps(response: documents.ChatResponse) -> Iterator[str]:
    for document in response.documents:
        yield "\n".join(_open_lines(document, response))
    match response.status:
        case "streaming" if not response.metadata.waiting_for:
            yield f"To wait for it, call `status` with\n{_call(response, waitSeconds=_WAIT_SECONDS)}"
        case "error":
            again = msgspec.json.encode({"prompt": "…", "conversationId": response.conversation_id}).decode()
            yield f"To continue the conversation, call `ask` or `run` with\n{again}"
        case _:
            pass


def _state(response: documents.ChatResponse) -> str:
    match response.status:
        case "completed":
            return "is completed"
        case "error":
            return "has ended with an error"
        case "streaming" if response.metadata.waiting_for:
            return "waits for an answer"
        case "streaming" if response.metadata.queue is not UNSET:
            return "waits in the queue"
        case "streaming":
            return "is still working"


def _open_lines(document: documents.Document, response: documents.ChatResponse) -> Iterator[str]:
    """What `answer` should be called with."""
    metadata = document.metadata
    if not isinstance(metadata, documents.ToolTrace):
        return
    if metadata.permission and metadata.state in _OPEN:
        yield f"The agent needs permission for `{metadata.permission.subject}`. Ask the user, then call `answer` with"
        yield _call(response, permissions=[{"documentId": document.id, "decision": "once"}])
        yield "`decision` can be `once`, `conversation`, `workspace` or `deny` (then perhaps with a `reason`)."
    elif isinstance(document, documents.ClarificationDocument) and metadata.state in _OPEN:
        yield from _questions(document.metadata, response)
    elif isinstance(document, documents.PlanDocument) and _is_open(document, response):
        yield f"The agent proposes a plan: {document.metadata.title}\n\n{document.content.strip()}\n"
        yield "Show it to the user, then call `answer` with"
        yield _call(response, plan="accept")
        yield 'or with `"plan": "reject"`.' + ("" if metadata.state == "waiting" else " `text` can say why.")


def _is_open(plan: documents.PlanDocument, response: documents.ChatResponse) -> bool:
    """A run in the mode `plan` may end with its plan."""
    is_decided = bool(plan.metadata.accepted) or plan.metadata.state == "rejected"
    return plan.metadata.state == "waiting" or (response.mode == "plan" and not is_decided)


def _questions(metadata: documents.ClarificationMetadata, response: documents.ChatResponse) -> Iterator[str]:
    yield "The agent asks:"
    for question in metadata.questions:
        yield f"- {question.text} (`questionId`: `{question.id}`)"
        for option in question.options:
            yield f"  - `{option.id}`: {option.label}"
    yield "Call `answer` with, for example,"
    yield _call(response, answers=[_sample(question) for question in metadata.questions])


def _sample(question: documents.ClarificationQuestion) -> dict[str, Any]:
    chosen = [option.id for option in question.options[:1]]
    return {"questionId": question.id, **({"selectedOptionIds": chosen} if chosen else {"text": "…"})}


def _call(response: documents.ChatResponse, **fields: Any) -> str:
    return msgspec.json.encode({"runId": response.id, **fields}).decode()


# --- progress: one line for each document event ------------------------------------------------------


def progress_line(event: document_events.DocumentEvent) -> str:
    """Empty if there is nothing to report."""
    match event:
        case document_events.DocumentStarted(metadata=metadata) if metadata is not None and metadata.command:
            return in_one_line(f"Running `{metadata.command}`")
        case document_events.DocumentEnded(document=documents.TextDocument(content=content)):
            return in_one_line(content.strip().partition("\n")[0])
        case document_events.DocumentEnded(document=document):
            return in_one_line(one_line(document) or "")
        case document_events.Paused():
            return "Waiting for an answer"
        case document_events.DocumentStarted() | document_events.ContentDelta() | document_events.Done():
            return ""
        case (
            document_events.ToolCallStarted()
            | document_events.ToolCallArguments()
            | document_events.ToolCallEnded()
            | document_events.Reasoning()
            | document_events.TerminalOutput()
        ):
            return ""


def progress_of(response: documents.ChatResponse) -> str:
    """The last line that was reported; empty if there was none."""
    if response.metadata.queue is not UNSET:
        return "Waiting in the queue"
    if response.status == "streaming" and response.metadata.waiting_for:
        return "Waiting for an answer"
    lines = (progress_line(document_events.DocumentEnded(document)) for document in reversed(response.documents))
    return next((line for line in lines if line), "")
