"""An agent's messages during one turn in; batches of agent events, and answers to its requests, out."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from msgspec import UNSET, Struct

from cursor_gateway.errors import AgentError, AgentOutputTooLarge
from cursor_gateway.model.actions import Outcome, Plan, Question
from cursor_gateway.model.agent_events import AgentEvent, TextDelta, ThinkingDelta, TokenCounts
from cursor_gateway.model.documents import ClarificationAnswer, ClarificationOption, ClarificationQuestion
from cursor_gateway.sources.acp.calls import ToolCall
from cursor_gateway.sources.acp.connection import SKIPPED, Refused, Session
from cursor_gateway.sources.acp.decoder import AcpDecoder, counted
from cursor_gateway.sources.acp.permissions import is_allowed, option_for
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cursor.tools import read_call, read_result
from cursor_gateway.wire.payload import Fields

Answer = TypeVar("Answer")

_ALLOW, _DENY = "allow", "deny"
_DECISIONS: dict[bool | None, tuple[str, dict[str, Any]]] = {
    True: ("accepted", {"success": {}}),
    False: ("rejected", {"rejected": {"reason": "The plan was rejected."}}),
    None: ("cancelled", {"rejected": {"reason": "The plan was not decided on."}}),
}


class Policy(Struct, frozen=True, kw_only=True):
    """How permission requests are answered."""

    allow: Sequence[str] = ()  # rules
    ask: bool = False  # ask the caller about what no rule allows
    has_key: bool = False  # the agent uses an API key
    max_output_bytes: int = 256 * 1024 * 1024


class RunningTurn:
    """The listener of one turn's session."""

    def __init__(self, turn: Turn, session: Session, policy: Policy) -> None:
        self._turn, self._session, self._policy = turn, session, policy
        self._decoder = AcpDecoder(turn.offered.server if turn.offered is not None else "")
        self._events: list[AgentEvent] = []
        self._change = asyncio.Event()
        self._questions: set[asyncio.Task[Any]] = set()
        self._question_count = 0
        self._size = 0
        self._began_ms = self._now_ms()
        self._has_events = False  # any so far
        self._is_over = False
        self._is_closed = False
        self._error: BaseException | None = None  # raised in place of events

    async def batches(self) -> AsyncGenerator[Sequence[AgentEvent], None]:
        """Raises an `AgentError` if the turn fails before the first event, or the output is too large."""
        while True:
            await self._change.wait()
            self._change.clear()
            events, self._events = self._events, []
            if self._error is not None:
                raise self._error
            if events:
                yield joined(events)
            if self._is_over and not self._events:
                return

    def ended(self, prompt: "asyncio.Task[Any]") -> None:
        """Called when the agent has answered the prompt, or is gone."""
        self.close()
        if prompt.cancelled() or self._is_over:
            return
        match prompt.exception():
            case None:
                self._put(self._decoder.finish(prompt.result(), self._spent(counted(prompt.result())), self._elapsed()))
                self._is_over = True
            case Refused() as refused:
                self._fail(refused.error(self._policy.has_key))
            case AgentError() as error:
                self._fail(error)
            case error:
                self._raise(error)

    def close(self) -> None:
        """Cancels open questions, and asks no more."""
        self._is_closed = True
        for task in self._questions:
            task.cancel()

    # --- what the agent sends -----------------------------------------------------------------------

    def update(self, update: object) -> None:
        if self._is_over:
            return
        self._size += _size(update)
        if self._size > self._policy.max_output_bytes:
            self._error = AgentOutputTooLarge(
                f"The agent wrote more than {self._policy.max_output_bytes} bytes; ask for less at a "
                "time, or raise `max_output_bytes`."
            )
        fields = Fields(update)
        if fields.text("sessionUpdate") == "current_mode_update":  # an agent may change it by itself
            self._session.mode = fields.text("currentModeId")
        self._put(self._decoder.push(update, self._now_ms()))

    def knows(self, call_id: str) -> bool:
        return self._decoder.call(call_id) is not None

    async def extension(self, method: str, params: Fields) -> dict[str, Any]:
        match method:
            case "cursor/ask_question":
                return await self._question(params)
            case "cursor/create_plan":
                return await self._plan(params)
            case _:
                self._put(self._decoder.extension(method, params.all))
                return {}

    async def permission(self, params: Fields) -> dict[str, Any]:
        requested = params.object("toolCall")
        call_id = requested.text("toolCallId")
        if not self.knows(call_id):
            self._put(self._decoder.push({**requested.all, "sessionUpdate": "tool_call"}, self._now_ms()))
        call = self._decoder.call(call_id)
        allowed = call is not None and await self._is_allowed(call, requested)
        if not allowed:
            self._decoder.deny(call_id)
        return option_for([] if self._is_closed else params.items("options"), allowed)

    # --- questions ----------------------------------------------------------------------------------

    async def _is_allowed(self, call: ToolCall, requested: Fields) -> bool:
        offered, person = self._turn.offered, self._turn.person
        if offered is not None:  # only the caller's tools, whatever the operator's rules allow
            return bool(call.server) and call.server == offered.server
        if is_allowed(call, self._policy.allow, self._turn.workspace):
            return True
        if person is None or not self._policy.ask:
            return False
        question, id = _permission_question(call, requested), self._own_id(f"{call.id} permission")
        self._put(self._decoder.ask(id, question, requested.all))
        answers = await self._answer(person.answer(id, question))
        self._put(self._decoder.settle(id, msgspec.structs.replace(question, answers=answers or []), Outcome()))
        return answers is not None and any(answer.selected_option_ids == [_ALLOW] for answer in answers)

    async def _question(self, params: Fields) -> dict[str, Any]:
        call_id, person = params.text("toolCallId") or self._own_id("question"), self._turn.person
        question = read_call("askQuestion", params.all)
        assert isinstance(question, Question)
        self._put(self._decoder.ask(call_id, question, params.all, waits=person is not None))
        answers = None if person is None else await self._answer(person.answer(call_id, question))
        if answers is None:
            self._settle(call_id, "askQuestion", params, {"rejected": {"reason": SKIPPED}})
            return {"outcome": {"outcome": "skipped", "reason": SKIPPED}}
        encoded = [_encoded(answer) for answer in answers]
        self._settle(call_id, "askQuestion", params, {"success": {"answers": encoded}})
        return {"outcome": {"outcome": "answered", "answers": encoded}}

    async def _plan(self, params: Fields) -> dict[str, Any]:
        """Accepted if there is nobody to ask, as in the CLI."""
        call_id, person = params.text("toolCallId") or self._own_id("plan"), self._turn.person
        plan = read_call("createPlan", params.all)
        assert isinstance(plan, Plan)
        self._put(self._decoder.ask(call_id, plan, params.all, waits=person is not None))
        accepted = True if person is None else await self._answer(person.decide(call_id, plan))
        outcome, result = _DECISIONS[accepted]
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
        if before is None or total is None:
            return None
        return TokenCounts(
            prompt=total.prompt - before.prompt,
            completion=total.completion - before.completion,
            cached=total.cached - before.cached,
        )


def joined(events: Sequence[AgentEvent]) -> list[AgentEvent]:
    """Merges adjacent deltas."""
    out: list[AgentEvent] = []
    for event in events:
        match (out[-1] if out else None), event:
            case TextDelta(text=before), TextDelta(text=text):
                out[-1] = TextDelta(before + text)
            case ThinkingDelta(text=before), ThinkingDelta(text=text):
                out[-1] = ThinkingDelta(before + text)
            case _:
                out.append(event)
    return out


def _permission_question(call: ToolCall, requested: Fields) -> Question:
    reasons = [part.object("content").text("text") for part in requested.objects("content")]
    reason = " ".join(f"({text})" for text in reasons if text)
    text = f"May the agent do this: {requested.text('title') or call.title or call.kind}? {reason}".strip()
    options = [ClarificationOption(id=_ALLOW, label="Allow once"), ClarificationOption(id=_DENY, label="Deny")]
    # A unique id: an answer that is sent twice must not allow the next request.
    question = ClarificationQuestion(id=f"permission_{uuid4().hex}", text=text, options=options)
    return Question(tool="request_permission", title="The agent asks for permission", questions=[question])


def _encoded(answer: ClarificationAnswer) -> dict[str, Any]:
    encoded: dict[str, Any] = {"questionId": answer.question_id, "selectedOptionIds": answer.selected_option_ids}
    return encoded if answer.text is UNSET else {**encoded, "freeText": answer.text}


def _size(update: object) -> int:
    fields = Fields(update)
    if fields.text("sessionUpdate").endswith("_chunk"):
        return len(fields.object("content").text("text"))
    return len(msgspec.json.encode(update))
