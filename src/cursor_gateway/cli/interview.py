"""What an agent waits to be told in; the questions on the terminal, and the answers of whoever sits there, out."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import click

from cursor_gateway.dialects.documents.request import AnswerRequest, QuestionAnswer
from cursor_gateway.model.document_events import ContentDelta, DocumentEnded, DocumentEvent, DocumentStarted, Paused
from cursor_gateway.model.documents import ClarificationQuestion
from cursor_gateway.render.visible import visible, visible_line

Answer: TypeAlias = Callable[[str, AnswerRequest], Awaitable[None]]  # for the run of that id


def can_be_asked() -> bool:
    """Somebody sits at both ends."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


class Interview:
    """Follows a run, so that it knows what a pause is about."""

    def __init__(self) -> None:
        self._open: dict[str, DocumentStarted] = {}
        self._plans: dict[str, list[str]] = {}  # what stands in them

    def push(self, event: DocumentEvent, /) -> None:
        match event:
            case DocumentStarted(id=id, type="clarification" | "plan"):
                self._open[id] = event
            case ContentDelta(id=id, text=text) if id in self._open:
                self._plans.setdefault(id, []).append(text)
            case DocumentEnded(document=document):
                self._open.pop(document.id, None)
            case _:
                pass

    async def hold(self, paused: Paused) -> AnswerRequest | None:
        """None: what is waited for is not for a person."""
        for waiting in paused.envelope.metadata.waiting_for or []:
            started = self._open.get(waiting.document_id)
            if started is None or started.metadata is None:
                continue
            if started.type == "plan":
                return await _decide(started.metadata.title or "", "".join(self._plans.get(started.id, [])))
            return AnswerRequest(answers=[await _ask(question) for question in started.metadata.questions or []])
        return None


async def _ask(question: ClarificationQuestion) -> QuestionAnswer:
    click.echo(f"\n{click.style('?', fg='yellow', bold=True)} {visible_line(question.text)}")
    for number, option in enumerate(question.options, 1):
        click.echo(f"  {click.style(str(number), bold=True)}  {visible_line(option.label)}")
    several = "numbers" if question.allow_multiple else "a number"
    hint = f"{several}, or your own answer" if question.options else "your answer"
    while True:
        told = (await _line(f"  {hint} (Enter skips): ")).strip()
        numbers = told.replace(",", " ").split()
        if not question.options or not numbers or not all(word.isdigit() for word in numbers):
            return QuestionAnswer(question_id=question.id, text=told)
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
    told = (await _line("  Accept it? [y/N] ")).strip().lower()
    return AnswerRequest(plan="accept" if told in ("y", "yes") else "reject")


async def _line(prompt: str) -> str:
    """Typed by a person. Not in a thread: Ctrl-C must end this at once, and nobody could end a thread that reads."""
    click.echo(prompt, nl=False)
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
