"""Start a run at a gateway, show it as it goes, and ask the user the agent's questions.

Some agents wait for the answer. Others continue without it; those questions are asked at the end of the run.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click
from msgspec import Struct

from cursor_gateway.cli.assembly.local_client import LAST
from cursor_gateway.cli.assembly.remote import GatewayChoice, Remote
from cursor_gateway.cli.output import Trouble, aside, unechoed, write_json, write_text
from cursor_gateway.dialects.documents.encoder import encode_response
from cursor_gateway.dialects.documents.request import AnswerRequest, PermissionAnswer, QuestionAnswer
from cursor_gateway.errors import RequestError
from cursor_gateway.model import document_events
from cursor_gateway.model.answers import Decision
from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.model.documents import (
    ClarificationQuestion,
    CodeBlockDocument,
    CodeReferenceDocument,
    Mode,
    PermissionRequest,
    fenced,
)
from cursor_gateway.model.requests import INTERACTIVE, Fences, Include
from cursor_gateway.render.visible import visible, visible_line
from cursor_gateway.stages.run_questions import PermissionAsked, PlanAsked, QuestionsAsked, RunQuestions
from cursor_gateway.stages.run_state import Transcript

if TYPE_CHECKING:
    from cursor_gateway.client.connection import ChatOptions


# --- the agent's questions ----------------------------------------------------------------------------


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


Batches: TypeAlias = AsyncGenerator[list[document_events.DocumentEvent], None]
Follow: TypeAlias = Callable[[str], Batches]  # the events of the run of that id


# --- the signals that end a command: they cancel what it does, so that its agent ends first ----------


_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class EndSignals:
    def __init__(self) -> None:
        self.received: list[int] = []

    def listen(self) -> None:
        """From the task that is to be cancelled. Again, if something else has taken the signals meanwhile."""
        task = asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            self.received.append(number)
            task.cancel()

        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under `nohup`
                asyncio.get_running_loop().add_signal_handler(number, end, number)


# --- what is asked for ------------------------------------------------------------------------------------

ChatForm: TypeAlias = Literal["view", "json", "text"]


class ChatCommand(Struct, frozen=True, kw_only=True):
    """The options of `cursor-gateway chat`."""

    place: GatewayChoice
    workspace: str | None = None
    conversation: str | None = None  # the one to continue, or `last`
    continues: bool = False  # the newest
    model: str | None = None
    mode: Mode | None = None
    fences: Fences | None = None
    include: tuple[Include, ...] = ()
    form: ChatForm | None = None

    @property
    def is_interactive(self) -> bool:
        return self.form is None and can_be_asked()

    @property
    def continued(self) -> str | None:
        return LAST if self.continues else self.conversation

    @property
    def options(self) -> "ChatOptions":
        """The options of each prompt."""
        return {
            "model": self.model,
            "mode": self.mode,
            "fences": self.fences or ("inline" if self.form == "text" else None),  # as text, code stays where it was
            "include": self.include,
            "may_ask": self.is_interactive,
            "source": INTERACTIVE if self.is_interactive else None,
        }

    @property
    def folder(self) -> Path:
        """Raises `Trouble`."""
        try:
            return Path(os.path.expanduser(self.workspace or ".")).absolute()
        except OSError:
            raise Trouble("the current folder no longer exists; change to another, or use --workspace.") from None

    @property
    def existing_folder(self) -> Path:
        """Raises `Trouble`."""
        if not self.folder.is_dir():
            raise Trouble(f"the folder {self.workspace!r} does not exist; name one that does.")
        return self.folder


# --- the answer on standard output, in the format that was asked for ---------------------------------


@contextmanager
def output_of(form: ChatForm) -> Iterator[Callable[[document_events.DocumentEvent], None]]:
    """A function that takes each event."""
    match form:
        case "view":
            from cursor_gateway.cli.output import terminal
            from cursor_gateway.render.terminal import TerminalView

            with TerminalView(terminal()) as view:
                yield view.push
        case "json":
            yield _Json().push
        case "text":
            text = _Text()
            try:
                yield text.push
            finally:
                text.end()


class _Json:
    """Nothing until the run is done, then all of it."""

    def __init__(self) -> None:
        self._transcript = Transcript()

    def push(self, event: document_events.DocumentEvent, /) -> None:
        self._transcript.push(event)
        if (response := self._transcript.response()) is not None:
            write_json(encode_response(response))


class _Text:
    """The agent's text as Markdown, with an empty line between two documents.

    The same for every source: a gateway's documents do not include the text between them.
    """

    def __init__(self) -> None:
        self._prose: set[str] = set()  # open documents whose deltas are written at once
        self._has_written = False

    def push(self, event: document_events.DocumentEvent, /) -> None:
        match event:
            case document_events.DocumentStarted(id=id, type="text"):
                self._prose.add(id)
                self._begin()
            case document_events.ContentDelta(id=id, text=text) if id in self._prose:
                self._say(text)
            case document_events.DocumentEnded(document=CodeBlockDocument() as document):
                self._begin()
                self._say(fenced(document.metadata.language, document.content))
            case document_events.DocumentEnded(document=CodeReferenceDocument() as document):
                place = document.metadata
                self._begin()
                self._say(fenced(f"{place.start_line}:{place.end_line}:{place.file_path}", document.content))
            case _:  # what it does
                pass

    def end(self) -> None:
        if self._has_written:
            write_text("\n")

    def _begin(self) -> None:
        if self._has_written:
            write_text("\n\n")

    def _say(self, text: str) -> None:
        self._has_written = True
        write_text(text)


# --- runs at a gateway -------------------------------------------------------------------------------


class GatewayRuns:
    def __init__(self, remote: Remote) -> None:
        self._remote, self._client = remote, remote.client
        self.run_id = self.conversation_id = ""  # of the last that was started; known before its first event

    async def start(self, message: str, options: "ChatOptions", *, is_folder_named: bool) -> Batches:
        """Stops the run if it is closed before the end. Raises `CallFailed`."""
        from cursor_gateway.client.failures import CallFailed

        async with AsyncExitStack() as opened:
            try:
                stream = await opened.enter_async_context(self._client.stream(message, **options))
            except UnicodeEncodeError:
                raise Trouble("an option is not valid UTF-8; correct it.") from None
            except CallFailed as error:
                if is_folder_named or error.param != "workspace":
                    raise
                default = (self._remote.health and self._remote.health.workspace) or ""
                aside(
                    f"This gateway is not allowed to work in {options.get('workspace')}, so it uses its default folder"
                    f"{f', {default}' if default else ''}. Allow more with `workspace_roots`, or use --direct."
                )
                options["workspace"] = None
                stream = await opened.enter_async_context(self._client.stream(message, **options))
            self.run_id, self.conversation_id = stream.id, stream.conversation_id
            async for events in stream.batches():
                yield events

    async def answer(self, run_id: str, reply: AnswerRequest) -> str:
        return await self._client.answer(
            run_id, permissions=reply.permissions, answers=reply.answers, plan=reply.plan, text=reply.text
        )

    async def follow(self, run_id: str) -> Batches:
        """Stops the run if it is closed before the end."""
        self.run_id, is_over = run_id, False
        try:
            async with self._client.events(run_id) as stream:
                async for events in stream.batches():
                    is_over = isinstance(events[-1], document_events.Done)
                    yield events
        finally:
            if not is_over:
                await self._client.cancel(run_id)


# --- showing -----------------------------------------------------------------------------------------


async def present(
    batches: Batches, form: ChatForm, answer: SendAnswer, follow: Follow, *, is_interactive: bool
) -> document_events.Done:
    """Includes the runs that follow from decisions at the end of one."""
    from cursor_gateway.client.failures import CallFailed

    if form == "view":
        aside()
    while True:
        interview = Interview()
        async with aclosing(batches):
            while not isinstance(last := await _shown(batches, form, interview), document_events.Done):
                if (reply := await interview.hold(last)) is not None:
                    await answer(last.envelope.id, reply)
        if not is_interactive or last.failure is not None or (reply := await interview.after()) is None:
            return last
        try:
            next_id = await answer(last.envelope.id, reply)
        except (CallFailed, RequestError) as error:  # the run itself is complete
            aside(str(error))
            return last
        if next_id == last.envelope.id:  # nothing new for the agent
            return last
        batches = follow(next_id)


async def _shown(
    batches: Batches, form: ChatForm, interview: Interview
) -> document_events.Paused | document_events.Done:
    """Up to the end, or to a question, for which the live view makes room."""
    with unechoed(), output_of(form) as output:
        async for events in batches:
            for event in events:
                output(event)
                interview.push(event)
            if isinstance(events[-1], document_events.Paused | document_events.Done):
                return events[-1]
    raise AssertionError("both sources end with `Done`, or raise")
