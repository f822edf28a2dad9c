"""Calls of the gateway's own tool for questions in; events of the turn, and what the agent reads as the answers, out.

The agent makes the calls in one way, over MCP, and reports what it does in another. So these events are to be put among
those that it reports: a source is notified when there are some.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cursor_gateway.model.agent_events import AgentEvent, Question, ToolEnded, ToolStarted
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.sources.base import Person
from cursor_gateway.sources.cursor import ask_user
from cursor_gateway.sources.cursor.tools import read_call, read_result
from cursor_gateway.wire.payload import too_deep

_REPORTED_SECONDS = 0.5


class UserQuestions:
    """Those of one turn, asked with `tool`. `close` must be called at the end."""

    def __init__(self, tool: ask_user.UserTool, person: Person) -> None:
        self.tool = tool
        tool.ask = self._ask
        self.notify: Callable[[], None] = lambda: None  # called when there is an event
        self._person = person
        self._events: list[AgentEvent] = []
        self._count = self._reports = 0
        self._reported = asyncio.Semaphore(0)  # released for each call that the agent has reported
        self._asked: dict[str, dict[str, Any]] = {}  # open questions, by call
        self._open: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def _ask(self, arguments: dict[str, Any]) -> ToolResult:
        """Cancelled when the agent no longer waits."""
        self._count += 1
        call_id = f"ask_user {self._count}"
        asked = None if too_deep(arguments) else ask_user.question_arguments(arguments, f"ask_{self._count}")
        if asked is None:
            return ask_user.INVALID
        with suppress(TimeoutError):  # what the agent wrote before the call comes in the other way
            async with asyncio.timeout(_REPORTED_SECONDS):
                await self._reported.acquire()
        if self._is_closed:
            return ask_user.NOBODY
        question = read_call("askQuestion", asked)
        assert isinstance(question, Question)
        self._asked[call_id] = asked
        self._put(ToolStarted(call_id, question, payload=asked, waits=True))
        answering = asyncio.get_running_loop().create_task(self._person.answer(call_id, question))
        self._open.add(answering)
        try:
            await asyncio.wait([answering])
        finally:
            self._open.discard(answering)
            is_answered = answering.done() and not answering.cancelled()
            answering.cancel()
            answers = answering.result() if is_answered else None
            self._put(_ended(call_id, asked, answers))
            del self._asked[call_id]
        return ask_user.answer_result(question, answers)

    def reported(self, calls: int) -> None:
        """The agent has reported so many calls of the tool, in all."""
        for _ in range(calls - self._reports):
            self._reported.release()
        self._reports = calls

    def among(self, events: list[AgentEvent], *, is_over: bool) -> list[AgentEvent]:
        """What the agent has reported, with the events since the last call. If the turn is over with it, the agent no
        longer waits for what it asked, although it may not have said so in the other way yet."""
        own, self._events = self._events, []
        if not is_over:
            return [*events, *own]
        ends = [_ended(call_id, asked, None) for call_id, asked in self._asked.items()]
        self.close()
        return [*own, *ends, *events]

    def close(self) -> None:
        """The turn is over: open questions end without an answer."""
        self._is_closed = True
        self.tool.ask = None
        for answering in self._open:
            answering.cancel()

    def _put(self, event: AgentEvent) -> None:
        if not self._is_closed:
            self._events.append(event)
            self.notify()


def _ended(call_id: str, asked: dict[str, Any], answers: list[ClarificationAnswer] | None) -> ToolEnded:
    return ToolEnded(call_id, *read_result("askQuestion", asked, ask_user.encoded_result(answers)))
