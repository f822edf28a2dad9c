"""Carry out a prompt: its runs as session updates, and what they ask put to the editor's user."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct

from cursor_gateway.acp_server import questions, shapes
from cursor_gateway.acp_server.updates import RunUpdates, SessionTodos
from cursor_gateway.client.asynchronous import AsyncClient, AsyncStream
from cursor_gateway.client.failures import CallFailed
from cursor_gateway.dialects.documents.request import QuestionAnswer
from cursor_gateway.model.document_events import DocumentEnded, Done, Paused
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.history import ConversationDetail, MessageEntry
from cursor_gateway.model.requests import INTERACTIVE
from cursor_gateway.sources.acp.rpc import RpcError
from cursor_gateway.stages.run_questions import PermissionAsked, PlanAsked, QuestionsAsked, RunQuestion, RunQuestions

if TYPE_CHECKING:
    from cursor_gateway.acp_server.prompts import Prompt
    from cursor_gateway.acp_server.server import AcpServer
    from cursor_gateway.client.calls import AnswerFields, ModelEntry
    from cursor_gateway.client.connection import ChatOptions

_STOP_SECONDS = 10.0  # for the last events of a run that was cancelled


class EditorSession:
    """A conversation of an editor's, with what is chosen for its next prompt."""

    def __init__(self, id: str, folder: str, conversation_id: str = "") -> None:
        self.id, self.folder = id, folder  # the folder that the editor works in
        self.conversation_id = conversation_id  # empty: nothing was sent yet
        self.workspace = folder  # the one that the agent works in
        self.mode: Mode | None = None  # None: the gateway's default
        self.model: str | None = None
        self.models: list[ModelEntry] = []  # empty while they are not known
        self.title = ""
        self.todos = SessionTodos()
        self.turn: PromptTurn | None = None  # that is under way


class PromptTurn:
    """A prompt with all its runs, or a run of somebody else's that is watched. `perform` runs one of its methods."""

    def __init__(self, editor: "AcpServer", session: EditorSession) -> None:
        self._editor, self._session = editor, session
        self._client: AsyncClient | None = None
        self._run_id = ""  # of the run that is under way
        self._asked = RunQuestions()
        self._dones: list[Done] = []
        self._work: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._is_ours = True  # the run is the editor's own
        self.is_cancelled = False

    async def perform(self, work: Coroutine[Any, Any, None]) -> None:
        """Until it is done or cancelled. Raises what the work raises."""
        self._work = asyncio.ensure_future(work)
        if self.is_cancelled:  # before it began
            self._work.cancel()
        try:
            await asyncio.wait([self._work])
        finally:
            self._work.cancel()
            await asyncio.gather(self._work, *filter(None, [self._stopping]), return_exceptions=True)
        if not self.is_cancelled:
            self._work.result()  # raises

    def cancel(self) -> None:
        """Stops the run. The turn ends with the last events of it."""
        if not self.is_cancelled and self._work is not None:
            self._stopping = asyncio.ensure_future(self._stop(self._work))
        self.is_cancelled = True

    async def leave(self) -> None:
        """The editor is gone, or has closed the session: stops the run if it is the editor's."""
        self.is_cancelled = True
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work], timeout=_STOP_SECONDS)

    async def _stop(self, work: "asyncio.Task[None]") -> None:
        if self._client is not None and self._run_id:
            with suppress(CallFailed):
                await self._client.cancel(self._run_id)
                await asyncio.wait([work], timeout=_STOP_SECONDS)
        work.cancel()

    @property
    def usage(self) -> shapes.TokenUsage | None:
        """Of all its runs."""
        used = [done.envelope.usage for done in self._dones]
        if not used:
            return None
        return shapes.TokenUsage(
            total_tokens=sum(one.total_tokens for one in used),
            input_tokens=sum(one.prompt_tokens for one in used),
            output_tokens=sum(one.completion_tokens for one in used),
            cached_read_tokens=sum(one.cached_tokens or 0 for one in used) or UNSET,
            thought_tokens=sum(one.reasoning_tokens or 0 for one in used) or UNSET,
        )

    # --- the runs -------------------------------------------------------------------------------------

    async def send(
        self, client: AsyncClient, prompt: "Prompt", folder: str | None, begun: Callable[[str], None]
    ) -> None:
        """`begun` gets the id of the conversation. Raises `CallFailed`, also for a run that failed."""
        session, self._client = self._session, client
        options: ChatOptions = {
            "conversation_id": session.conversation_id or None,
            "model": session.model,
            "mode": session.mode,
            "workspace": None if session.conversation_id else folder,
            "fences": "inline",  # so that the text streams as the agent writes it
            "include": ["thinking", "context"],
            "may_ask": True,
            "source": INTERACTIVE,
            "images": prompt.images,
            "when_client_leaves": "cancel",  # an editor may kill this process
        }
        async with client.stream(prompt.message, **options) as stream:
            begun(stream.conversation_id)
            done = await self._follow(stream)
            if done.failure is not None:
                await stream.result()  # raises
        while (asked := self._asked.left(done)) and (fields := await self._decide(asked, done)) is not None:
            fields["when_client_leaves"] = "cancel"
            answering = asyncio.ensure_future(client.answer(done.envelope.id, **fields))
            try:
                next_id = await asyncio.shield(answering)
                if next_id == done.envelope.id:  # nothing new for the agent
                    return
                async with client.events(next_id) as stream:
                    done = await self._follow(stream)
                    if done.failure is not None:
                        await stream.result()  # raises
            except asyncio.CancelledError:  # also while the answer is on its way, and starts a run
                with suppress(CallFailed):
                    await client.cancel(await answering)
                raise

    async def watch(self, client: AsyncClient, run_id: str) -> None:
        """A run that was not started here. Leaving it does not stop it."""
        self._client, self._is_ours = client, False
        async with client.events(run_id) as stream:
            await self._follow(stream)

    async def _follow(self, stream: AsyncStream) -> Done:
        session, editor = self._session, self._editor
        self._run_id = stream.id
        updates = RunUpdates(stream.id, session.workspace, session.todos)
        self._asked = RunQuestions()
        asking: dict[str, asyncio.Task[None]] = {}
        try:
            async for events in stream.batches():
                for event in events:
                    self._asked.push(event)
                    for update in updates.push(event):
                        await editor.update(session.id, update)
                    match event:
                        case DocumentEnded(document=document) if document.id in asking:
                            asking[document.id].cancel()  # somebody has answered
                        case Paused():
                            for asked in await self._waiting(stream.id):
                                if asked.document_id not in asking:
                                    call_id = updates.call_id(asked.document_id)
                                    answering = self._answer(stream.id, asked, call_id)
                                    asking[asked.document_id] = asyncio.ensure_future(answering)
                        case Done():
                            self._dones.append(event)
                            return event
                        case _:
                            pass
        finally:
            self._run_id = ""
            for task in asking.values():
                task.cancel()
            if asking:
                await asyncio.wait(asking.values())
        raise AssertionError("a stream ends with `Done`, or raises")

    async def _waiting(self, run_id: str) -> list[RunQuestion]:
        """What the run asks now: a pause that is read again may have been answered long ago."""
        assert self._client is not None
        response = await self._client.response(run_id)
        return list(self._asked.waiting(response.metadata.waiting_for or ()))

    # --- what they ask --------------------------------------------------------------------------------

    async def _answer(self, run_id: str, asked: RunQuestion, call_id: str) -> None:
        assert self._client is not None
        try:
            fields = await self._ask(asked, call_id)
            if fields is not None and not self.is_cancelled:
                if self._is_ours:
                    fields["when_client_leaves"] = "cancel"
                await self._client.answer(run_id, **fields)
        except CallFailed as error:  # such as: somebody else was faster
            self._editor.log(f"The answer was not accepted: {error}")
        except ConnectionError:  # the editor is gone, and so is its turn
            pass

    async def _decide(self, asked: list[RunQuestion], done: Done) -> "AnswerFields | None":
        """What the agent continued without. None: nothing was decided."""
        fields: AnswerFields | None = None
        for one in asked:
            call_id = f"{done.envelope.id}/{one.document_id}"
            decided = await self._ask(one, call_id)
            # The call itself has ended before.
            status: shapes.ToolStatus = "completed" if isinstance(one, PlanAsked) else "failed"
            await self._editor.update(self._session.id, shapes.ToolCallUpdate(tool_call_id=call_id, status=status))
            if decided is None:
                continue
            if fields is not None and "permissions" in fields and "permissions" in decided:
                fields["permissions"] = [*(fields["permissions"] or ()), *(decided["permissions"] or ())]
            else:
                fields = decided
            if isinstance(one, PlanAsked):  # what follows carries it out
                self._session.mode = "agent"
                await self._editor.update(self._session.id, shapes.ModeUpdate(current_mode_id="agent"))
        return fields

    async def _ask(self, asked: RunQuestion, call_id: str) -> "AnswerFields | None":
        """None: it stays undecided, which only something past can."""
        id = self._session.id
        match asked:
            case PermissionAsked():
                answer = await self._requested(
                    "session/request_permission", questions.permission_params(id, call_id, asked)
                )
                decision = questions.decision_of(asked, answer)
                return None if decision is None else {"permissions": [decision]}
            case PlanAsked():
                answer = await self._requested("session/request_permission", questions.plan_params(id, call_id, asked))
                choice = questions.choice_of(asked, answer)
                return None if choice is None else {"plan": choice}
            case QuestionsAsked():
                answers = await self._ask_questions(asked, call_id)
                has_answer = any(one.selected_option_ids or one.text for one in answers)
                return {"answers": answers} if has_answer or not asked.is_past else None

    async def _ask_questions(self, asked: QuestionsAsked, call_id: str) -> list[QuestionAnswer]:
        id = self._session.id
        if self._editor.capabilities.has_forms:
            return questions.form_answers(
                asked, await self._requested("elicitation/create", questions.form_params(id, call_id, asked))
            )
        answers: list[QuestionAnswer] = []
        for question in asked.questions:
            params = questions.question_params(id, call_id, question)
            answers.append(
                questions.question_answer(question, await self._requested("session/request_permission", params))
            )
        return answers

    async def _requested(self, method: str, params: Struct) -> Any:
        """None if the client cannot answer: then it is as if the user had said no."""
        try:
            return await self._editor.request(method, params)
        except RpcError as error:
            self._editor.log(f"The editor refused {method}: {error}")
            return None


async def replay(editor: "AcpServer", session: EditorSession, client: AsyncClient, detail: ConversationDetail) -> str:
    """The whole conversation. Returns the id of the run that is still active, whose events are left out; or ""."""
    for run in detail.runs:
        for message in detail.messages:
            if message.chat_id == run.id and message.role == "user":
                await editor.update(session.id, _user_chunk(message))
        if run.state == "running":
            return run.id
        updates = RunUpdates(run.id, session.workspace, session.todos)
        async with client.events(run.id) as stream:
            async for events in stream.batches():
                for update in (update for event in events for update in updates.push(event)):
                    await editor.update(session.id, update)
    return ""


def _user_chunk(message: MessageEntry) -> shapes.UserMessageChunk:
    text = message.note or message.text
    return shapes.UserMessageChunk(content=shapes.TextContent(text=text), message_id=f"{message.chat_id}/user")
