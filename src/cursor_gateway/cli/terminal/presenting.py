"""Start a run at a gateway, show it as it goes, and let the user answer the agent's questions."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cursor_gateway.cli.assembly.local_client import LAST
from cursor_gateway.cli.assembly.remote import GatewayChoice, Remote
from cursor_gateway.cli.output import Trouble, aside, unechoed, write_json, write_text
from cursor_gateway.cli.terminal.interview import Interview, SendAnswer, can_be_asked
from cursor_gateway.dialects.documents.encoder import encode_response
from cursor_gateway.dialects.documents.request import AnswerRequest
from cursor_gateway.errors import RequestError
from cursor_gateway.model import document_events
from cursor_gateway.model.documents import CodeBlockDocument, CodeReferenceDocument, Mode, fenced
from cursor_gateway.model.requests import INTERACTIVE, Fences, Include
from cursor_gateway.stages.run_state import Transcript

if TYPE_CHECKING:
    from cursor_gateway.client.connection import ChatOptions

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
