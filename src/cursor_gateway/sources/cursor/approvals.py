"""The permissions of one turn whose agent asks by a hook: each call in; allowed, denied, or a person's decision out."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.model.agent_events import AgentEvent, Outcome, Question, RunFinished, ToolEnded, ToolStarted
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.documents import PermissionRequest
from cursor_gateway.sources.base import Person
from cursor_gateway.sources.cursor.gated_calls import GatedCalls, StartedCall, is_gated
from cursor_gateway.sources.cursor.hook_rules import AskedCall, Policy, refusal
from cursor_gateway.sources.cursor.permission_questions import (
    GIVEN_UP,
    REJECTED,
    UNDECIDED,
    answered,
    permission_question,
)
from cursor_gateway.sources.cursor.permissions import explained
from cursor_gateway.wire.payload import too_deep

_SHOWN_SECONDS = 0.5  # the stream and the hook reach the gateway on different ways

_NOT_ALLOWED = "Not run: the user did not allow it. Continue without it."
OVER = "Not run: the run is over."
_REPEATED = "Not run: the agent has made this call again."


class Answer(Struct, frozen=True, omit_defaults=True):
    """As the agent reads it."""

    permission: str
    user_message: str = ""
    agent_message: str = ""


ALLOWED = Answer("allow")


def denied(reason: str) -> Answer:
    return Answer("deny", reason, reason)


class _Asked(Struct):
    """A question that is open."""

    id: str
    question: Question
    call: AskedCall
    started: StartedCall | None
    waiter: asyncio.Future[Answer]  # of the hook
    task: asyncio.Task[None] | None = None


class Approvals:
    """`close` must be called when the turn is over; it allows nothing from then on."""

    def __init__(self, policy: Policy, workspace: str, person: Person | None) -> None:
        """`workspace` without links. `person` is None if nobody can be asked."""
        self.policy, self.workspace = policy, workspace
        self.notify: Callable[[], None] = lambda: None  # called when `passed` has more to return
        self._person = person
        self._calls = GatedCalls(holds=person is not None and policy.may_ask)
        self._out: list[AgentEvent] = []
        self._shown = asyncio.Event()  # set when a call has been shown since
        self._open: list[_Asked] = []
        self._count = 0
        self._is_closed = False

    @property
    def had_tasks(self) -> bool:
        """Whether sub-agents were started."""
        return self._calls.had_tasks

    def passed(self, events: Sequence[AgentEvent]) -> list[AgentEvent]:
        """The agent's events, after those of its questions. Starts of calls may be held back. Questions end with a
        turn that ends well, although the agent's hook may still wait."""
        out, self._out = self._out, []
        if any(isinstance(event, RunFinished) for event in events):
            out += [ToolEnded(asked.id, asked.question, GIVEN_UP) for asked in self._open]
            self.close()
        out += self._calls.push(events)
        if any(isinstance(event, ToolStarted) for event in events):
            self._shown.set()
        return out

    def close(self) -> None:
        self._is_closed = True
        for asked in self._open:
            _give(asked.waiter, denied(OVER))
            if asked.task is not None:
                asked.task.cancel()

    async def answer(self, call: AskedCall, *, is_own: bool) -> Answer:
        """`is_own`: not of a sub-agent, whose calls the agent does not report. Cancelled if the agent no longer
        waits."""
        refused = refusal(call, self.policy)
        is_shown = (
            is_own
            and is_gated(call.tool)
            and not self.policy.is_users(call.tool)
            and (refused is not None or self._calls.holds)
        )
        started = await self._claimed(call) if is_shown else None
        if refused is not None and started is not None and started.server:
            servers = sorted(self._calls.servers(call.tool, call.args))  # each of them must be allowed
            each = (refusal(replace(call, server=server), self.policy) for server in servers)
            refused = next(filter(None, each), None)
        if self._is_closed:
            return denied(OVER)
        if refused is None:
            self._release(started)
            return ALLOWED
        if refused.request is None:
            return denied(refused.reason)
        if self._person is None:
            _refuse(started, explained(REJECTED, _with_rules(refused.request)))
            return denied(refused.reason)
        return await self._decision(self._person, call, started, refused.request)

    async def _claimed(self, call: AskedCall) -> StartedCall | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHOWN_SECONDS):
                while (started := self._calls.claim(call.tool, call.args)) is None:
                    self._shown.clear()
                    await self._shown.wait()
                return started
        return None

    async def _decision(
        self, person: Person, call: AskedCall, started: StartedCall | None, wanted: PermissionRequest
    ) -> Answer:
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        asked = self._repeated(call, started)
        if asked is not None:  # the question stays, for the call that the agent makes now
            _give(asked.waiter, denied(_REPEATED))
            asked.started, asked.waiter = started, waiter
        else:
            asked = self._ask(person, call, started, wanted, waiter)
        try:
            return await waiter
        finally:  # perhaps cancelled
            if asked.waiter is waiter and asked.task is not None:
                asked.task.cancel()

    def _repeated(self, call: AskedCall, started: StartedCall | None) -> _Asked | None:
        """The question about the same call in an attempt before: the agent starts again after a lost connection. Two
        calls of one attempt have the same model call."""
        if started is None:
            return None
        for asked in self._open:
            before = asked.started.event.model_call if asked.started is not None else started.event.model_call
            if asked.call == call and before != started.event.model_call:
                return asked
        return None

    def _ask(
        self,
        person: Person,
        call: AskedCall,
        started: StartedCall | None,
        wanted: PermissionRequest,
        waiter: "asyncio.Future[Answer]",
    ) -> _Asked:
        self._count += 1
        about = started.event.call_id if started is not None else "subagent"
        id, question = f"{about} permission {self._count}", permission_question(wanted)
        parent = self._calls.tasks[-1] if started is None and self._calls.tasks else None
        payload = None if too_deep(call.args) else {"tool_name": call.tool, "tool_input": call.args}
        self._put([ToolStarted(id, question, payload=payload, waits=True, parent=parent)])
        asked = _Asked(id, question, call, started, waiter)
        asked.task = asyncio.get_running_loop().create_task(self._settle(person, asked, wanted), name=id)
        self._open.append(asked)
        return asked

    async def _settle(self, person: Person, asked: _Asked, wanted: PermissionRequest) -> None:
        question, outcome, decided = asked.question, GIVEN_UP, None
        try:
            decided = await person.permit(asked.id, asked.question)
            outcome = UNDECIDED if decided is None else Outcome()
            question = asked.question if decided is None else answered(asked.question, decided)
        finally:
            self._open.remove(asked)
            self._put([ToolEnded(asked.id, question, outcome)])
            _give(asked.waiter, self._answer(asked, wanted, decided))

    def _answer(self, asked: _Asked, wanted: PermissionRequest, decided: Permission | None) -> Answer:
        if decided is None or self._is_closed:
            _refuse(asked.started, explained(REJECTED, _with_rules(wanted)))
            return denied("Not run: nobody decided in time.")
        if not decided.is_allowed:
            _refuse(asked.started, REJECTED)
            return denied(f"{_NOT_ALLOWED} {decided.reason}".strip())
        if decided.decision != "once":
            self.policy = replace(self.policy, rules=[*self.policy.rules, *wanted.rules])
        self._release(asked.started)
        return ALLOWED

    def _release(self, started: StartedCall | None) -> None:
        if started is not None and (events := self._calls.release(started)):
            self._put(events)

    def _put(self, events: Sequence[AgentEvent]) -> None:
        if not self._is_closed:
            self._out += events
            self.notify()


def _refuse(started: StartedCall | None, outcome: Outcome) -> None:
    if started is not None:
        started.refused = outcome


def _with_rules(request: PermissionRequest) -> PermissionRequest | None:
    return request if request.rules else None


def _give(waiter: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not waiter.done():
        waiter.set_result(answer)
