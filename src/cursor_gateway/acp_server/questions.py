"""What a run asks in; the requests that put it to the user of an editor out; and back."""

from typing import Any, TypeVar

import msgspec

from cursor_gateway.acp_server import shapes
from cursor_gateway.dialects.documents.request import PermissionAnswer, QuestionAnswer
from cursor_gateway.model.answers import Decision, PlanChoice
from cursor_gateway.model.documents import ClarificationQuestion
from cursor_gateway.stages.run_questions import PermissionAsked, PlanAsked, QuestionsAsked

_SKIP = "skip"  # the option that answers no question
_OTHER = " (own answer)"  # after a question's id: the field for a written answer


# --- permissions -------------------------------------------------------------------------------------


def permission_params(session_id: str, call_id: str, asked: PermissionAsked) -> shapes.PermissionParams:
    request = asked.request
    options = [shapes.PermissionOption(option_id="once", name="Allow once", kind="allow_once")]
    if request.rules:
        rules = ", ".join(request.rules)
        options += [
            shapes.PermissionOption(
                option_id="conversation", name=f"Always allow {rules} in this conversation", kind="allow_always"
            ),
            shapes.PermissionOption(
                option_id="workspace", name=f"Always allow {rules} in this workspace", kind="allow_always"
            ),
        ]
    options.append(shapes.PermissionOption(option_id="deny", name="Deny", kind="reject_once"))
    details = shapes.ToolCallDetails(
        tool_call_id=call_id,
        title=request.subject,
        kind="execute",
        status="pending",
        content=[shapes.ToolText(content=shapes.TextContent(text=request.warning))]
        if request.warning
        else msgspec.UNSET,
    )
    return shapes.PermissionParams(session_id=session_id, tool_call=details, options=options)


def decision_of(asked: PermissionAsked, answer: object) -> PermissionAnswer | None:
    """None: it is left undecided, which only a past one can be."""
    decisions: tuple[Decision, ...] = ("once", "conversation", "workspace")
    chosen = _selected(answer)
    decision: Decision = next((one for one in decisions if one == chosen), "deny")
    if decision == "deny" and asked.is_past:
        return None
    return PermissionAnswer(document_id=asked.document_id, decision=decision)


# --- plans -------------------------------------------------------------------------------------------


def plan_params(session_id: str, call_id: str, asked: PlanAsked) -> shapes.PermissionParams:
    details = shapes.ToolCallDetails(
        tool_call_id=call_id,
        title=f"Plan: {asked.title}" if asked.title else "Plan",
        kind="think",
        status="pending",
        content=[shapes.ToolText(content=shapes.TextContent(text=asked.text))] if asked.text else msgspec.UNSET,
    )
    accept = "Accept the plan and carry it out" if asked.is_past else "Accept the plan"
    options = [
        shapes.PermissionOption(option_id="accept", name=accept, kind="allow_once"),
        shapes.PermissionOption(option_id="reject", name="Reject it", kind="reject_once"),
    ]
    return shapes.PermissionParams(session_id=session_id, tool_call=details, options=options)


def choice_of(asked: PlanAsked, answer: object) -> PlanChoice | None:
    """None: it is left undecided, which only a past one can be."""
    if _selected(answer) == "accept":
        return "accept"
    return None if asked.is_past else "reject"


# --- questions ---------------------------------------------------------------------------------------


def form_params(session_id: str, call_id: str, asked: QuestionsAsked) -> shapes.FormParams:
    """For clients that can show forms: all questions at once, each with a field for a written answer."""
    properties: dict[str, Any] = {}
    for question in asked.questions:
        options = [{"const": option.id, "title": option.label} for option in question.options]
        if not options:
            properties[question.id] = {"type": "string", "title": question.text}
            continue
        if question.allow_multiple:
            properties[question.id] = {"type": "array", "title": question.text, "items": {"anyOf": options}}
        else:
            properties[question.id] = {"type": "string", "title": question.text, "oneOf": options}
        properties[f"{question.id}{_OTHER}"] = {"type": "string", "title": "Or your own answer"}
    return shapes.FormParams(
        session_id=session_id,
        tool_call_id=call_id,
        message=asked.questions[0].text if len(asked.questions) == 1 else "The agent has some questions.",
        requested_schema={"type": "object", "properties": properties},
    )


def form_answers(asked: QuestionsAsked, answer: object) -> list[QuestionAnswer]:
    """Empty answers are skipped questions."""
    result = _read(answer, shapes.FormResult)
    content = (result.content or {}) if result is not None and result.action == "accept" else {}
    return [_answer(question, content) for question in asked.questions]


def _answer(question: ClarificationQuestion, content: dict[str, Any]) -> QuestionAnswer:
    given, written = content.get(question.id), content.get(f"{question.id}{_OTHER}")
    chosen = given if isinstance(given, list) else [given]
    known = {option.id for option in question.options}
    texts = [*(one for one in chosen if isinstance(one, str) and one not in known), written]
    return QuestionAnswer(
        question_id=question.id,
        selected_option_ids=[one for one in chosen if isinstance(one, str) and one in known],
        text="\n".join(text for text in texts if isinstance(text, str) and text.strip()),
    )


def question_params(session_id: str, call_id: str, question: ClarificationQuestion) -> shapes.PermissionParams:
    """For other clients: one question, whose answers are the options of a permission."""
    options = [
        shapes.PermissionOption(option_id=f"{number}", name=option.label, kind="allow_once")
        for number, option in enumerate(question.options)
    ]
    options.append(shapes.PermissionOption(option_id=_SKIP, name="Skip this question", kind="reject_once"))
    details = shapes.ToolCallDetails(tool_call_id=call_id, title=question.text, kind="other", status="pending")
    return shapes.PermissionParams(session_id=session_id, tool_call=details, options=options)


def question_answer(question: ClarificationQuestion, answer: object) -> QuestionAnswer:
    options = {f"{number}": option.id for number, option in enumerate(question.options)}
    chosen = options.get(_selected(answer))
    return QuestionAnswer(question_id=question.id, selected_option_ids=[] if chosen is None else [chosen])


def _selected(answer: object) -> str:
    """Empty: nothing was."""
    result = _read(answer, shapes.PermissionResult)
    return result.outcome.option_id if result is not None and result.outcome.outcome == "selected" else ""


_Shape = TypeVar("_Shape")


def _read(answer: object, shape: type[_Shape]) -> _Shape | None:
    try:
        return msgspec.convert(answer, shape)
    except msgspec.ValidationError:
        return None
