"""Ask the user the agent's questions at the terminal.

Some agents wait for the answer. Others continue without it; those questions are asked at the end of the run.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import click

from cursor_gateway.dialects.documents.request import AnswerRequest, PermissionAnswer, QuestionAnswer
from cursor_gateway.model.answers import Decision
from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.model.documents import ClarificationQuestion, PermissionRequest
from cursor_gateway.render.visible import visible, visible_line
from cursor_gateway.stages.run_questions import PermissionAsked, PlanAsked, QuestionsAsked, RunQuestions

SendAnswer: TypeAlias = Callable[[str, AnswerRequest], Awaitable[str]]  # returns the id of the run that continues

_KEYS: dict[str, Decision] = {"o": "once", "c": "conversation", "w": "workspace", "d": "deny"}
_MEANINGS: dict[Decision, str] = {
    "once": "allow once",
    "conversation": "always allow in this conversation",
    "workspace": "always allow in this workspace",
    "deny": "deny",
}


def can_be_asked() -> bool:
    """Whether standard input and output are terminals."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


class Interview:
    """Follows a run, so that it knows what a pause is about."""

    def __init__(self) -> None:
        self._questions = RunQuestions()

    def push(self, event: DocumentEvent, /) -> None:
        self._questions.push(event)

    async def hold(self, paused: Paused) -> AnswerRequest | None:
        """None if the run does not wait for a person."""
        asked = next(self._questions.waiting(paused.envelope.metadata.waiting_for or []), None)
        match asked:
            case None:
                return None
            case PlanAsked(title=title, text=text):
                return await _decide(title, text)
            case PermissionAsked(document_id=id, request=request):
                decided = await permit(id, request)
                assert decided is not None
                return AnswerRequest(permissions=[decided])
            case QuestionsAsked(questions=questions):
                return AnswerRequest(answers=[await _ask(question) for question in questions])

    async def after(self) -> AnswerRequest | None:
        """Questions that the agent continued without. None if there are none, or all were skipped."""
        rejected = self._questions.rejected()
        decided = [await permit(one.document_id, one.request, can_skip=True, is_past=True) for one in rejected]
        if permissions := [one for one in decided if one is not None]:
            return AnswerRequest(permissions=permissions)
        answers = [await _ask(question) for one in self._questions.unanswered() for question in one.questions]
        if given := [one for one in answers if one.selected_option_ids or one.text]:
            return AnswerRequest(answers=given)
        return None


async def permit(
    id: str, request: PermissionRequest, *, can_skip: bool = False, is_past: bool = False
) -> PermissionAnswer | None:
    """The decision about this document. None if the question was skipped. `is_past`: the agent went on without it."""
    asks = "The agent was not allowed to run" if is_past else "The agent wants to run"
    click.echo(f"\n{click.style('?', fg='yellow', bold=True)} {asks}: {visible_line(request.subject)}")
    keys = {key: one for key, one in _KEYS.items() if request.rules or one in ("once", "deny")}
    for key, one in keys.items():
        rules = f" ({visible_line(', '.join(request.rules))})" if one in ("conversation", "workspace") else ""
        click.echo(f"  {click.style(key, bold=True)}  {_MEANINGS[one]}{rules}")
    if request.warning:
        click.echo(f"  {click.style('!', fg='yellow', bold=True)}  {visible_line(request.warning)}")
    skips = ", Enter to leave it" if can_skip else ""
    while True:
        reply = (await read_line(f"  {', '.join(keys)}{skips}: ")).strip().lower()
        if not reply and can_skip:
            return None
        if reply in keys:
            break
        click.echo(f"  Type one of {', '.join(keys)}.")
    reason = (await read_line("  Why not? (for the agent; Enter for no reason): ")).strip() if reply == "d" else ""
    return PermissionAnswer(document_id=id, decision=keys[reply], reason=reason)


async def _ask(question: ClarificationQuestion) -> QuestionAnswer:
    click.echo(f"\n{click.style('?', fg='yellow', bold=True)} {visible_line(question.text)}")
    for number, option in enumerate(question.options, 1):
        click.echo(f"  {click.style(str(number), bold=True)}  {visible_line(option.label)}")
    several = "numbers" if question.allow_multiple else "a number"
    hint = f"{several}, or your own answer" if question.options else "your answer"
    while True:
        reply = (await read_line(f"  {hint} (Enter skips): ")).strip()
        numbers = reply.replace(",", " ").split()
        if not question.options or not numbers or not all(word.isdigit() for word in numbers):
            return QuestionAnswer(question_id=question.id, text=reply)
        chosen = [int(word) for word in numbers]
        if all(1 <= one <= len(question.options) for one in chosen) and (question.allow_multiple or len(chosen) == 1):
            return QuestionAnswer(
                question_id=question.id, selected_option_ids=[question.options[one - 1].id for one in chosen]
            )
        click.echo(f"  Choose {'some' if question.allow_multiple else 'one'} of 1 to {len(question.options)}.")


async def _decide(title: str, markdown: str) -> AnswerRequest:
    click.echo(f"\n{click.style('?', fg='yellow', bold=True)} The agent proposes a plan: {visible_line(title)}")
    if markdown:
        click.echo(visible(markdown))
    reply = (await read_line("  Accept it? [y/N] ")).strip().lower()
    return AnswerRequest(plan="accept" if reply in ("y", "yes") else "reject")


async def read_line(prompt: str) -> str:
    """Typed by a person. Not in a thread: Ctrl-C must end this at once, and a thread that reads cannot be ended."""
    click.echo(prompt, nl=False)
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
