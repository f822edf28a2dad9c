"""Handle an agent's messages during one turn: decode its events, and answer its requests."""

import asyncio
import os
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from cursor_gateway.errors import AgentError
from cursor_gateway.model.agent_events import AgentEvent, Outcome, Plan, Question, TextDelta, TokenCounts, merge_deltas
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.documents import ClarificationAnswer, PermissionRequest
from cursor_gateway.prompting.replies import permissions_message
from cursor_gateway.sources.acp.calls import AcpCall, asked_call, call_of, is_allowed, learn, option_for
from cursor_gateway.sources.acp.connection import AgentConnection, Session, refusal_of
from cursor_gateway.sources.acp.decoder import AcpDecoder, counted
from cursor_gateway.sources.acp.rpc import RpcError
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cursor.approvals import REJECTED, UNDECIDED, answered, permission_question
from cursor_gateway.sources.cursor.ask_user import (
    INVALID,
    NOBODY,
    SKIPPED,
    answer_result,
    encoded_answer,
    encoded_result,
    question_arguments,
)
from cursor_gateway.sources.cursor.failures import output_too_large
from cursor_gateway.sources.cursor.permissions import explained, needed
from cursor_gateway.sources.cursor.tools import read_call, read_result
from cursor_gateway.wire.payload import Fields, too_deep

Answer = TypeVar("Answer")

_SHOWN_SECONDS = 0.5

_Decided: TypeAlias = tuple[str, dict[str, Any]]  # for the agent, and for the document
_UNASKED: _Decided = ("accepted", {"success": {}})
_DECISIONS: dict[bool | None, _Decided] = {
    True: ("accepted", {"success": {"accepted": True}}),
    False: ("rejected", {"rejected": {"reason": "The plan was rejected."}}),
    None: ("cancelled", {"rejected": {"reason": "The plan was not decided on."}}),
}


class AcpPolicy(Struct, frozen=True, kw_only=True):
    """How permission requests are answered."""

    allow: Sequence[str] = ()  # rules
    ask: bool = False  # ask the caller about what no rule allows
    has_key: bool = False  # the agent uses an API key
    max_output_bytes: int = 256 * 1024 * 1024


class RunningTurn:
    """The listener of one turn's session."""

    def __init__(self, turn: Turn, session: Session, policy: AcpPolicy) -> None:
        self._turn, self._session, self._policy = turn, session, policy
        offered = turn.offered.server if turn.offered is not None else ""
        self._decoder = AcpDecoder(offered, session.user_tool, session.last_calls)
        if session.user_tool is not None:
            session.user_tool.ask = self.ask_user if turn.person is not None else None
        self._connection: AgentConnection | None = None
        self._events: list[AgentEvent] = []
        self._change = asyncio.Event()
        self._prompt: asyncio.Task[Any] | None = None  # the last one that was sent
        self._questions: set[asyncio.Task[Any]] = set()
        self._allowed = [*policy.allow, *turn.allow]
        self._denied: list[tuple[PermissionRequest, Permission]] = []  # to be reported to the agent
        self._question_count = 0
        self._call_shown = asyncio.Semaphore(0)  # released for each call of the user's tool
        self._size = 0
        self._began_ms = self._now_ms()
        self._has_events = False  # any so far
        self._is_over = False
        self._is_closed = False
        self._error: BaseException | None = None  # raised in place of events

    def send(self, connection: AgentConnection, prompt: list[dict[str, Any]]) -> None:
        self._connection = connection
        connection.listen(self._session.id, self)
        request = connection.request("session/prompt", {"sessionId": self._session.id, "prompt": prompt}, None)
        self._prompt = asyncio.get_running_loop().create_task(request, name=f"acp prompt {self._session.id}")
        self._prompt.add_done_callback(lambda sent: self._answered(connection, sent))

    async def stop(self, connection: AgentConnection, grace_seconds: float) -> bool:
        """Cancels the prompt if it is still open. Returns whether the agent is stuck: it does not answer that."""
        self._close()
        is_stuck = False
        if self._prompt is not None and not self._prompt.done():
            connection.notify("session/cancel", {"sessionId": self._session.id})
            await asyncio.wait([self._prompt], timeout=grace_seconds)
            if is_stuck := not self._prompt.done():
                connection.sessions.pop(self._session.id, None)
                self._prompt.cancel()
                await asyncio.wait([self._prompt])
        connection.forget(self)
        self._session.last_calls = self._decoder.call_ids
        return is_stuck

    async def batches(self) -> AsyncGenerator[Sequence[AgentEvent], None]:
        """Raises an `AgentError` if the turn fails before the first event, or the output is too large."""
        while True:
            await self._change.wait()
            self._change.clear()
            events, self._events = self._events, []
            if self._error is not None:
                raise self._error
            if events:
                yield merge_deltas(events)
            if self._is_over and not self._events:
                return

    def _answered(self, connection: AgentConnection, prompt: "asyncio.Task[Any]") -> None:
        """The agent has answered the prompt, or is gone."""
        is_well = not prompt.cancelled() and prompt.exception() is None
        is_complete = is_well and Fields(prompt.result()).text("stopReason") == "end_turn"
        if is_complete and (text := self._take_denials()):
            self.send(connection, [{"type": "text", "text": text}])
            return
        self._close()
        if prompt.cancelled() or self._is_over:
            return
        match prompt.exception():
            case None:
                self._put(self._decoder.finish(prompt.result(), self._spent(counted(prompt.result())), self._elapsed()))
                self._is_over = True
            case RpcError() as refused:
                self._fail(refusal_of(refused, has_key=self._policy.has_key))
            case AgentError() as error:
                self._fail(error)
            case error:
                self._raise(error)

    def _close(self) -> None:
        """Cancels open questions, and asks no more."""
        self._is_closed = True
        if self._session.user_tool is not None:
            self._session.user_tool.ask = None
        for task in self._questions:
            task.cancel()

    # --- what the agent sends -----------------------------------------------------------------------

    def update(self, update: object, session_id: str) -> None:
        if self._is_over:
            return
        self._size += _size(update)
        if self._size > self._policy.max_output_bytes:
            self._error = output_too_large(self._policy.max_output_bytes)
        fields, is_own = Fields(update), session_id == self._session.id
        child = fields.text("subagentSessionId") if fields.text("sessionUpdate") == "subagent_spawned" else ""
        if child and self._connection is not None:
            self._connection.listen(child, self)
        shown = self._decoder.user_calls
        self._put(self._decoder.push(update, self._now_ms(), "" if is_own else session_id))
        for _ in range(self._decoder.user_calls - shown):
            self._call_shown.release()

    def knows(self, call_id: str) -> bool:
        return self._decoder.call(call_id) is not None

    def extension(self, method: str, params: Fields) -> None:
        self._put(self._decoder.extension(method, params.all))

    async def permission(self, params: Fields) -> dict[str, Any]:
        requested = params.object("toolCall")
        call_id, session_id = requested.text("toolCallId"), params.text("sessionId")
        if call_id and not too_deep(requested.all):
            about = asked_call(requested)
            named, child = call_of(about), "" if session_id == self._session.id else session_id
            if self._decoder.is_another(named, child):
                call_id = named.id = self._own_id(call_id)
            if (known := self._decoder.call(call_id)) is None:
                self._decoder.announce(named, child)
            else:  # the agent will do what it asks for, whatever it reported before
                learn(known, Fields({name: about.all.get(name) for name in ("rawInput", "locations")}))
        call = self._decoder.call(call_id)
        refused = REJECTED if call is None else await self._refusal(call, requested)
        self._put(self._decoder.begin(call_id) if refused is None else self._decoder.deny(call_id, refused))
        return option_for([] if self._is_closed else params.items("options"), refused is None)

    def _take_denials(self) -> str:
        """A message to the agent about rejected calls, because a rejection over ACP has no reason."""
        denied, self._denied = self._denied, []
        if not denied or self._is_closed:
            return ""
        self._put([TextDelta("\n\n")])
        return permissions_message(denied)

    # --- questions ----------------------------------------------------------------------------------

    async def _refusal(self, call: AcpCall, requested: Fields) -> Outcome | None:
        """How the call ends if it is not allowed. None: it is."""
        offered, person, workspace = self._turn.offered, self._turn.approver, self._turn.workspace
        if offered is not None:  # only the caller's tools, whatever the operator's rules allow
            return None if call.server and call.server == offered.server else REJECTED
        if self._session.user_tool is not None and self._session.user_tool.is_called_by(call.server):
            return None
        call.places += _behind_links([Fields(call.args).text("path"), *(path for path, _ in call.places)], workspace)
        if is_allowed(call, self._allowed, workspace):
            return None
        request = needed(call.tool, call.args)
        if person is None or not self._policy.ask:
            return explained(REJECTED, request)
        wanted = request or PermissionRequest(subject=requested.text("title") or call.title or call.kind, rules=[])
        question, id = permission_question(wanted, _reason(requested)), self._own_id(f"{call.id} permission")
        self._put(self._decoder.ask(id, question, requested.all, parent=call.parent))
        decided = await self._answer(person.permit(id, question))
        if decided is None:
            self._put(self._decoder.settle(id, question, UNDECIDED))
            return explained(REJECTED, request)
        self._put(self._decoder.settle(id, answered(question, decided), Outcome()))
        if decided.decision in ("conversation", "workspace"):
            self._allowed += wanted.rules
        if decided.reason:
            self._denied.append((wanted, decided))
        return None if decided.is_allowed else REJECTED

    async def question(self, params: Fields) -> dict[str, Any]:
        _, answers = await self._ask(params.text("toolCallId") or self._own_id("question"), params)
        if answers is None:
            return {"outcome": {"outcome": "skipped", "reason": SKIPPED}}
        return {"outcome": {"outcome": "answered", "answers": [encoded_answer(answer) for answer in answers]}}

    async def ask_user(self, arguments: dict[str, Any]) -> ToolResult:
        """A call of the gateway's own tool."""
        call_id = self._own_id("ask_user")
        asked = question_arguments(arguments, f"ask_{self._question_count}")
        if asked is None:
            return INVALID
        with suppress(TimeoutError):  # what the agent wrote before the call comes on another way
            async with asyncio.timeout(_SHOWN_SECONDS):
                await self._call_shown.acquire()
        return NOBODY if self._is_closed else answer_result(*await self._ask(call_id, Fields(asked)))

    async def _ask(self, call_id: str, params: Fields) -> tuple[Question, list[ClarificationAnswer] | None]:
        person, question = self._turn.person, read_call("askQuestion", params.all)
        assert isinstance(question, Question)
        self._put(self._decoder.ask(call_id, question, params.all, waits=person is not None))
        answers: list[ClarificationAnswer] | None = None
        try:
            if person is not None:
                answers = await self._answer(person.answer(call_id, question))
        finally:  # perhaps cancelled, because the agent no longer waits
            self._settle(call_id, "askQuestion", params, encoded_result(answers))
        return question, answers

    async def plan(self, params: Fields) -> dict[str, Any]:
        """Accepted if nobody can be asked, as in the CLI."""
        call_id, person = params.text("toolCallId") or self._own_id("plan"), self._turn.person
        plan = read_call("createPlan", params.all)
        assert isinstance(plan, Plan)
        self._put(self._decoder.ask(call_id, plan, params.all, waits=person is not None))
        decision = None if person is None else await self._answer(person.decide(call_id, plan))
        outcome, result = _UNASKED if person is None else _DECISIONS[decision]
        self._settle(call_id, "createPlan", params, result)
        return {"outcome": {"outcome": outcome}}

    async def _answer(self, asking: Coroutine[Any, Any, Answer | None]) -> Answer | None:
        """Also None if the turn ends first."""
        task = asyncio.get_running_loop().create_task(asking)
        self._questions.add(task)
        try:
            await asyncio.wait([task])
        finally:
            self._questions.discard(task)
            task.cancel()
        return None if task.cancelled() else task.result()

    def _settle(self, call_id: str, tool: str, params: Fields, result: dict[str, Any]) -> None:
        self._put(self._decoder.settle(call_id, *read_result(tool, params.all, result)))

    def _own_id(self, about: str) -> str:
        self._question_count += 1
        return f"{about} {self._question_count}"

    # ------------------------------------------------------------------------------------------------

    def _fail(self, error: AgentError) -> None:
        """Raised before the first event, so that another source may retry; reported as an event after that."""
        if self._has_events:
            self._put(self._decoder.flush(error.failure(), self._elapsed()))
            self._is_over = True
        else:
            self._raise(error)

    def _raise(self, error: BaseException) -> None:
        self._error, self._is_over = error, True
        self._change.set()

    def _put(self, events: list[AgentEvent]) -> None:
        if not self._is_over:
            self._events += events
            self._has_events = self._has_events or bool(events)
            self._change.set()

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    def _elapsed(self) -> int:
        return int(self._now_ms() - self._began_ms)

    def _spent(self, total: TokenCounts | None) -> TokenCounts | None:
        """This turn's share of the session's total."""
        before, self._session.spent = self._session.spent, total
        return None if before is None or total is None else total.plus(before, -1)


def _behind_links(paths: Sequence[str], workspace: str) -> list[tuple[str, None]]:
    """The files that the agent would find at these paths, if links in or out of the workspace lead elsewhere."""
    found = []
    for path in filter(None, paths):
        real = os.path.realpath(os.path.join(workspace, path))
        if os.path.relpath(real, os.path.realpath(workspace)) != os.path.relpath(
            os.path.join(workspace, path), workspace
        ):
            found.append((real, None))
    return found


def _reason(requested: Fields) -> str:
    texts = [part.object("content").text("text") for part in requested.objects("content")]
    return " ".join(f"({text})" for text in texts if text)


def _size(update: object) -> int:
    fields = Fields(update)
    if fields.text("sessionUpdate").endswith("_chunk"):
        return len(fields.object("content").text("text"))
    return len(msgspec.json.encode(update))
