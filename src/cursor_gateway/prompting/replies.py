"""Write a user's answers and decisions as a message to the agent.

For agents that cannot wait for an answer: it becomes the next message of the conversation.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from cursor_gateway.errors import InvalidRequest, NotFound
from cursor_gateway.model.answers import Permission, PlanChoice
from cursor_gateway.model.documents import (
    ClarificationAnswer,
    ClarificationDocument,
    ClarificationQuestion,
    Document,
    PermissionRequest,
    PlanDocument,
)

_NO_ANSWER = "(no answer)"


def answers_message(documents: Sequence[Document], answers: Sequence[ClarificationAnswer]) -> str:
    """Raises `NotFound` for a run without questions, `InvalidRequest` for answers that do not match them."""
    clarifications = [document for document in documents if isinstance(document, ClarificationDocument)]
    questions = {question.id: question for document in clarifications for question in document.metadata.questions}
    if not questions:
        raise NotFound("This run has no question to answer; send a new message.", param="answers")
    check_answers(questions, answers)
    return answers_text(list(questions.values()), answers)


def answers_text(questions: Sequence[ClarificationQuestion], answers: Sequence[ClarificationAnswer]) -> str:
    """Each question that is answered, and its answer."""
    asked = {question.id: question for question in questions}
    return "\n\n".join(_answer_text(asked[answer.question_id], answer) for answer in answers)


def with_later_answers(documents: Sequence[Document], messages: Sequence[str]) -> list[Document]:
    """The documents, with the answers that these later messages give to questions which had none."""
    return [_with_later_answers(document, messages) for document in documents]


def _with_later_answers(document: Document, messages: Sequence[str]) -> Document:
    if not isinstance(document, ClarificationDocument) or document.metadata.state != "unanswered":
        return document
    found = (_answers_in(message, document.metadata.questions) for message in messages)
    answers = next(filter(None, found), [])
    if not answers:
        return document
    return replace(document, metadata=replace(document.metadata, answers=answers, state=UNSET, reason=UNSET))


def _answers_in(message: str, questions: Sequence[ClarificationQuestion]) -> list[ClarificationAnswer]:
    """Of a message in the form of `answers_message`."""
    placed = ((_place(message, question), number) for number, question in enumerate(questions))
    found, end = [], len(message)
    for place, number in sorted((one for one in placed if one[0] >= 0), reverse=True):
        question = questions[number]
        lines = message[place + len(question.text) + 1 : end].strip("\n").removeprefix("- ").split("\n- ")
        options = {option.label: option.id for option in question.options}
        chosen = [options[line] for line in lines if line in options]
        said = "\n- ".join(line for line in lines if line not in options)
        if lines != [_NO_ANSWER]:
            found.append(ClarificationAnswer(question_id=question.id, selected_option_ids=chosen, text=said or UNSET))
        end = place
    return found[::-1]


def _place(message: str, question: ClarificationQuestion) -> int:
    """Where the answer to this question begins; -1: there is none."""
    start = f"{question.text}\n- "
    after = message.find(f"\n\n{start}")
    return 0 if message.startswith(start) else after + 2 if after >= 0 else -1


def check_answers(questions: Mapping[str, ClarificationQuestion], answers: Sequence[ClarificationAnswer]) -> None:
    """Raises `InvalidRequest`. `questions` by their ids."""
    for number, answer in enumerate(answers):
        param, question = f"answers[{number}]", questions.get(answer.question_id)
        if question is None:
            raise InvalidRequest(
                f"{param}.questionId: {answer.question_id[:100]!r} is not open; choose from {', '.join(questions)}.",
                param=f"{param}.questionId",
            )
        if len(answer.selected_option_ids) > 1 and not question.allow_multiple:
            raise InvalidRequest(
                f"{param}.selectedOptionIds: this question takes one option, not {len(answer.selected_option_ids)}; "
                "choose one.",
                param=f"{param}.selectedOptionIds",
            )
        options = [option.id for option in question.options]
        for id in answer.selected_option_ids:
            if id not in options:
                there = f"there are {', '.join(options)}" if options else "there are none: send `text`"
                raise InvalidRequest(
                    f"{param}.selectedOptionIds: {id[:100]!r} is not an option of this question; {there}.",
                    param=f"{param}.selectedOptionIds",
                )


def _answer_text(question: ClarificationQuestion, answer: ClarificationAnswer) -> str:
    labels = {option.id: option.label for option in question.options}
    chosen = [labels[id] for id in answer.selected_option_ids]
    lines = [*chosen, answer.text] if answer.text else chosen
    return f"{question.text}\n{chr(10).join(f'- {line}' for line in lines or [_NO_ANSWER])}"


def plan_message(documents: Sequence[Document], decision: PlanChoice, text: str) -> str:
    """Raises `NotFound` for a run without a plan."""
    plan = next((document for document in reversed(documents) if isinstance(document, PlanDocument)), None)
    if plan is None:
        raise NotFound("This run has no plan; send a new message.", param="plan")
    name = f" “{plan.metadata.title}”" if plan.metadata.title else ""
    message = {
        "accept": f"I accept the plan{name}. Carry it out now.",
        "reject": f"I do not accept the plan{name}. Make another one.",
    }[decision]
    return f"{message}\n\n{text}" if text else message


def permissions_message(decided: Sequence[tuple[PermissionRequest, Permission]]) -> str:
    """For calls that were rejected before anybody was asked."""
    return "\n\n".join(_permission_text(request, permission) for request, permission in decided)


def _permission_text(request: PermissionRequest, permission: Permission) -> str:
    subject = "\n".join(f"    {line}" for line in request.subject.splitlines())
    match permission.decision:
        case "once":
            return f"You may run this once:\n\n{subject}\n\nRun it now, then continue."
        case "conversation" | "workspace":
            return f"You may run this from now on:\n\n{subject}\n\nRun it now, then continue."
        case "deny":
            reason = f" {permission.reason}" if permission.reason else ""
            return f"Do not run this:\n\n{subject}\n\nContinue without it.{reason}"


_DECIDED = re.compile(
    r"(You may run this once|You may run this from now on|Do not run this):\n\n"
    r"((?:    [^\n]*(?:\n    [^\n]*)*)?)\n\n"
    r"(?:Run it now, then continue\.|Continue without it\.(?: (.*?))?)"
    r"(?:\n\n(?=You may run this|Do not run this)|\Z)",
    re.DOTALL,
)


def decisions_in(message: str) -> list[str]:
    """Of a message in the form of `permissions_message`, a sentence for each decision; of any other, nothing."""
    sentences, place = [], 0
    while (found := _DECIDED.match(message, place)) is not None:
        decision, indented, reason = found.groups()
        lines = [line.removeprefix("    ") for line in indented.split("\n")]
        subject = f"`{lines[0]}`{' …' if lines[1:] else ''}"
        match decision:
            case "You may run this once":
                sentences.append(f"You allowed {subject} once.")
            case "You may run this from now on":
                sentences.append(f"You allowed {subject} from now on.")
            case _:
                sentences.append(f"You denied {subject}: {reason}" if reason else f"You denied {subject}.")
        place = found.end()
    return sentences if place == len(message) else []


def permission_of(answer: ClarificationAnswer, number: int = 0) -> Permission:
    """An answer to a question that asks for permission. Raises `InvalidRequest`: text alone is no decision."""
    param = f"answers[{number}]"
    match answer.selected_option_ids:
        case ["deny"]:
            return Permission("deny", answer.text or "")
        case ["once" | "conversation" | "workspace" as decision]:
            if answer.text:
                raise InvalidRequest(
                    f"{param}.text: A reason can only be sent with `deny`; omit it, or deny.", param=f"{param}.text"
                )
            return Permission(decision)
        case _:
            raise InvalidRequest(
                f"{param}.selectedOptionIds: choose `once`, `conversation`, `workspace` or `deny`; `text` alone is no "
                "decision.",
                param=f"{param}.selectedOptionIds",
            )
