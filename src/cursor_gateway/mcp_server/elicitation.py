"""What an agent waits for as forms for the host's user; the filled form as the answer to the run."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.dialects.documents.request import PermissionAnswer, QuestionAnswer
from cursor_gateway.mcp_server.peers import Peer
from cursor_gateway.mcp_server.tools import AnswerArguments
from cursor_gateway.model import documents
from cursor_gateway.model.answers import Decision, PlanChoice

METHOD = "elicitation/create"

_NO_ANSWER = "The user did not want to answer. Decide yourself, or continue without it."
_OTHER = ".text"  # after a question's id: its answer in the user's own words

_Form: TypeAlias = dict[str, Any]


class FilledForm(Struct, frozen=True):
    action: Literal["accept", "decline", "cancel"]  # decline: the user says no; cancel: there was no decision
    content: dict[str, Any] | None = None


def read_form(value: Any) -> FilledForm:
    """What is none counts as no decision."""
    try:
        return msgspec.convert(value, FilledForm)
    except msgspec.ValidationError:
        return FilledForm("cancel")


def forms(response: documents.ChatResponse, peer: Peer) -> dict[str, _Form]:
    """The parameters of `elicitation/create` for each document that the run waits with, by their ids."""
    return {document.id: _form(document, peer) for document in _waiting(response)}


def answer_to(
    response: documents.ChatResponse, document_id: str, form: FilledForm, *, is_final: bool = False
) -> AnswerArguments | None:
    """None: there was no decision, or the run does not wait for one about this document.

    A question that the user does not answer is left to the host's model: without a user, Codex declines all forms.
    `is_final`: nobody else is asked, so the agent is told that there is no answer.
    """
    document = next((one for one in _waiting(response) if one.id == document_id), None)
    if document is None:
        return None
    is_question = isinstance(document, documents.ClarificationDocument) and not document.metadata.permission
    if not is_final and (form.action == "cancel" or (form.action == "decline" and is_question)):
        return None
    content = (form.content or {}) if form.action == "accept" else {}
    metadata = document.metadata
    if isinstance(metadata, documents.ToolTrace) and metadata.permission:
        decision = _decision(content)
        reason = str(content.get("reason") or "") if decision == "deny" else ""
        permission = PermissionAnswer(document_id=document.id, decision=decision, reason=reason)
        return AnswerArguments(run_id=response.id, permissions=[permission])
    if isinstance(document, documents.ClarificationDocument):
        answers = [_question_answer(question, content) for question in document.metadata.questions]
        return AnswerArguments(run_id=response.id, answers=answers)
    choice: PlanChoice = "accept" if content.get("decision") == "accept" else "reject"
    return AnswerArguments(run_id=response.id, plan=choice)


def _waiting(response: documents.ChatResponse) -> Iterator[documents.Document]:
    if response.status != "streaming" or not response.metadata.waiting_for:
        return
    for document in response.documents:
        metadata = document.metadata
        if not isinstance(metadata, documents.ToolTrace) or metadata.state != "waiting":
            continue
        if metadata.permission or isinstance(document, documents.ClarificationDocument | documents.PlanDocument):
            yield document


def has_questions(response: documents.ChatResponse) -> bool:
    """Whether a document is not decided yet: the run waits for that, or will in a moment."""
    return response.status == "streaming" and any(
        isinstance(document.metadata, documents.ToolTrace)
        and document.metadata.state in ("waiting", "running")
        and (bool(document.metadata.permission) or isinstance(document, documents.ClarificationDocument))
        for document in response.documents
    )


def _form(document: documents.Document, peer: Peer) -> _Form:
    metadata = document.metadata
    if isinstance(metadata, documents.ToolTrace) and metadata.permission:
        wanted = metadata.permission
        rules = ", ".join(wanted.rules)
        choices = {
            "once": "Allow once",
            "conversation": f"Always allow in this conversation ({rules})",
            "workspace": f"Always allow in this folder ({rules})",
            "deny": "Deny",
        }
        warning = f"\n\n{wanted.warning}" if wanted.warning else ""
        properties = {
            "decision": {"title": "Decision", **_choice(choices, peer)},
            "reason": {"type": "string", "title": "Reason", "description": "With “Deny”: what the agent is told."},
        }
        message = f"Cursor's agent needs permission for:\n\n{wanted.subject}{warning}"
        return _parameters(message, properties, ["decision"], peer)
    match document:
        case documents.ClarificationDocument(content=content, metadata=questions):
            fields = [field for question in questions.questions for field in _fields(question, peer)]
            return _parameters(content or "Cursor's agent asks:", dict(fields), [], peer)
        case _:
            decision = {"decision": {"title": "Decision", **_choice({"accept": "Accept", "reject": "Reject"}, peer)}}
            title = document.metadata.title if isinstance(document, documents.PlanDocument) else ""
            message = f"Cursor's agent proposes a plan: {title}\n\n{(document.content or '').strip()}"
            return _parameters(message, decision, ["decision"], peer)


def _parameters(message: str, properties: Mapping[str, _Form], required: list[str], peer: Peer) -> _Form:
    schema: _Form = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = required
    mode = {"mode": "form"} if peer.has_titled_choices else {}  # before, there was no other
    return {**mode, "message": message, "requestedSchema": schema}


def _choice(labels: Mapping[str, str], peer: Peer) -> _Form:
    if peer.has_titled_choices:
        return {"type": "string", "oneOf": [{"const": id, "title": label} for id, label in labels.items()]}
    return {"type": "string", "enum": list(labels), "enumNames": list(labels.values())}


def _fields(question: documents.ClarificationQuestion, peer: Peer) -> Iterator[tuple[str, _Form]]:
    if not question.options:
        yield question.id, {"type": "string", "title": question.text}
        return
    labels = {option.id: option.label for option in question.options}
    if question.allow_multiple and peer.has_titled_choices:
        choices = [{"const": id, "title": label} for id, label in labels.items()]
        yield question.id, {"type": "array", "title": question.text, "items": {"anyOf": choices}}
    else:
        yield question.id, {"title": question.text, **_choice(labels, peer)}
    yield f"{question.id}{_OTHER}", {"type": "string", "title": "In your own words"}


def _question_answer(question: documents.ClarificationQuestion, content: Mapping[str, Any]) -> QuestionAnswer:
    given, known = content.get(question.id), [option.id for option in question.options]
    chosen = [id for id in (given if isinstance(given, list) else [given]) if id in known]
    words = content.get(f"{question.id}{_OTHER}") or ("" if chosen or not isinstance(given, str) else given)
    if not chosen and not words:
        words = _NO_ANSWER
    return QuestionAnswer(question_id=question.id, selected_option_ids=chosen, text=str(words))


def _decision(content: Mapping[str, Any]) -> Decision:
    try:
        decision: Decision = msgspec.convert(content.get("decision"), Decision)
    except msgspec.ValidationError:
        return "deny"
    return decision
