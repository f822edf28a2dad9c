"""The permissions of one turn whose agent asks by a hook: each call in; allowed, denied, or a person's decision out."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from msgspec import UNSET, Struct
from msgspec.structs import replace

from cursor_gateway.model import agent_events, documents
from cursor_gateway.model.answers import Decision, Permission
from cursor_gateway.sources.base import Person
from cursor_gateway.sources.cursor.permissions import MCP, AskedCall, Policy, explained, refusal
from cursor_gateway.wire.payload import Fields, too_deep

# --- The question for a person, and how such a call ends; for all backends whose agent waits -------
# Shared by all backends whose agent waits for the decision.

_LABELS: dict[Decision, str] = {
    "once": "Allow once",
    "conversation": "Always allow in this conversation",
    "workspace": "Always allow in this workspace",
    "deny": "Deny",
}
REJECTED = agent_events.Outcome(state="rejected", code="NOT_ALLOWED", message="Not run: it was not allowed.")
# Of the question itself.
UNDECIDED = agent_events.Outcome(
    state="unanswered", code="UNANSWERED", message="Nobody decided in time, so it was not allowed."
)
GIVEN_UP = agent_events.Outcome(
    state="unanswered", code="UNANSWERED", message="The agent no longer waits for the decision, so it was not allowed."
)


def permission_question(wanted: documents.PermissionRequest, reason: str = "") -> agent_events.Question:
    text = f"May the agent do this: {wanted.subject}? {reason}".strip()
    decisions = [one for one in _LABELS if wanted.rules or one in ("once", "deny")]
    options = [documents.ClarificationOption(id=one, label=_LABELS[one]) for one in decisions]
    # A unique id: an answer that is sent twice must not allow the next request.
    question = documents.ClarificationQuestion(id=f"permission_{uuid4().hex}", text=text, options=options)
    title = "The agent asks for permission"
    return agent_events.Question(tool="request_permission", title=title, questions=[question], permission=wanted)


def answered(question: agent_events.Question, decided: Permission) -> agent_events.Question:
    answer = documents.ClarificationAnswer(
        question_id=question.questions[0].id,
        selected_option_ids=[decided.decision],
        text=decided.reason or UNSET,
    )
    return replace(question, answers=[answer])


# --- Calls that may need permission: their starts are held back ------------------------------------
# The agent reports that a call starts, and only then runs its hook, which asks for permission. A command must not look
# as if it ran while it waits, so its start is reported when it is allowed, or with its end.

_SHELL = "Shell"


def is_gated(tool: str) -> bool:
    """Whether calls of this tool, as hooks name it, are among those that may be held back."""
    return tool == _SHELL or tool.startswith(MCP)


class StartedCall(Struct):
    """A call that has not ended."""

    event: agent_events.ToolStarted
    tool: str  # as hooks name it
    args: Any
    server: str = ""  # of an MCP tool
    is_held: bool = False  # its start is not reported yet
    is_claimed: bool = False  # by its hook
    refused: agent_events.Outcome | None = None  # how it ends, because it was not allowed


class GatedCalls:
    def __init__(self, *, holds: bool) -> None:
        """With `holds`, starts of commands and of MCP tools are held back."""
        self.holds = holds
        self._calls: dict[str, StartedCall] = {}
        self._tasks: list[str] = []  # calls of sub-agents that have not ended
        self.had_tasks = False

    def push(self, events: Sequence[agent_events.AgentEvent]) -> list[agent_events.AgentEvent]:
        out: list[agent_events.AgentEvent] = []
        for event in events:
            match event:
                case agent_events.ToolStarted() if (call := _started(event)) is not None:
                    self._calls[event.call_id] = call
                    call.is_held = self.holds
                    if not call.is_held:
                        out.append(event)
                case agent_events.ToolStarted() if _name(event) == "task":
                    self._tasks.append(event.call_id)
                    self.had_tasks = True
                    out.append(event)
                case agent_events.ToolEnded():
                    out += self._ended(event)
                case agent_events.CommandOutput(call_id=id) if id in self._calls:  # so it runs
                    out += [*self.release(self._calls[id]), event]
                case _:
                    out.append(event)
        return out

    def _ended(self, event: agent_events.ToolEnded) -> list[agent_events.AgentEvent]:
        if event.call_id in self._tasks:
            self._tasks.remove(event.call_id)
        call = self._calls.pop(event.call_id, None)
        if call is None:
            return [event]
        if call.refused is not None and event.outcome.state != "completed":  # otherwise it ran, whatever was answered
            refused = replace(call.refused, duration_ms=event.outcome.duration_ms)
            event = replace(event, outcome=refused)
        return [call.event, event] if call.is_held else [event]

    @property
    def tasks(self) -> list[str]:
        return self._tasks

    def claim(self, tool: str, args: object) -> StartedCall | None:
        """The first call like this whose hook has not asked yet."""
        for call in self._calls.values():
            if not call.is_claimed and (call.tool, call.args) == (tool, _compared(tool, args)):
                call.is_claimed = True
                return call
        return None

    def servers(self, tool: str, args: object) -> set[str]:
        """Of all calls like this that have not ended: a hook does not tell which of them it asks about."""
        wanted = (tool, _compared(tool, args))
        return {call.server for call in self._calls.values() if (call.tool, call.args) == wanted}

    def release(self, call: StartedCall) -> list[agent_events.AgentEvent]:
        """The call is allowed, so it runs now."""
        is_held, call.is_held = call.is_held, False
        return [call.event] if is_held else []


def _name(event: agent_events.ToolStarted) -> str:
    """Cursor's name of the tool: the SDK and the CLI have it in different places."""
    payload = Fields(event.payload)
    in_key = (key.removesuffix("ToolCall") for key in payload.all if key.endswith("ToolCall"))
    return payload.text("type") or next(in_key, "")


def _started(event: agent_events.ToolStarted) -> StartedCall | None:
    """None for a tool that no hook asks about."""
    if isinstance(event.action, agent_events.Command):
        return StartedCall(event, _SHELL, event.action.command)
    if _name(event) != "mcp":
        return None
    payload = Fields(event.payload)
    args = Fields(payload.all.get("args") or payload.object("mcpToolCall").all.get("args"))
    server = args.text("providerIdentifier", "serverIdentifier", "server")
    return StartedCall(event, MCP + args.text("toolName", "name"), args.object("args").all, server)


def _compared(tool: str, args: object) -> Any:
    return Fields(args).text("command") if tool == _SHELL else Fields(args).all


# --- One turn --------------------------------------------------------------------------------------

_SHOWN_SECONDS = 0.5  # the stream and the hook reach the gateway on different ways

_NOT_ALLOWED = "Not run: the user did not allow it. Continue without it."
OVER = "Not run: the run is over."
_REPEATED = "Not run: the agent has made this call again."


class HookAnswer(Struct, frozen=True, omit_defaults=True):
    """As the agent reads it."""

    permission: str
    user_message: str = ""
    agent_message: str = ""


ALLOWED = HookAnswer("allow")


def denied(reason: str) -> HookAnswer:
    return HookAnswer("deny", reason, reason)


class _Asked(Struct):
    """A question that is open."""

    id: str
    question: agent_events.Question
    call: AskedCall
    started: StartedCall | None
    waiter: asyncio.Future[HookAnswer]  # of the hook
    task: asyncio.Task[None] | None = None


class Approvals:
    """`close` must be called when the turn is over; it allows nothing from then on."""

    def __init__(self, policy: Policy, workspace: str, person: Person | None) -> None:
        """`workspace` without links. `person` is None if nobody can be asked."""
        self.policy, self.workspace = policy, workspace
        self.notify: Callable[[], None] = lambda: None  # called when `passed` has more to return
        self._person = person
        self._calls = GatedCalls(holds=person is not None and policy.may_ask)
        self._out: list[agent_events.AgentEvent] = []
        self._shown = asyncio.Event()  # set when a call has been shown since
        self._open: list[_Asked] = []
        self._count = 0
        self._is_closed = False

    @property
    def had_tasks(self) -> bool:
        """Whether sub-agents were started."""
        return self._calls.had_tasks

    def passed(self, events: Sequence[agent_events.AgentEvent]) -> list[agent_events.AgentEvent]:
        """The agent's events, after those of its questions. Starts of calls may be held back. Questions end with a
        turn that ends well, although the agent's hook may still wait."""
        out, self._out = self._out, []
        if any(isinstance(event, agent_events.RunFinished) for event in events):
            out += [agent_events.ToolEnded(asked.id, asked.question, GIVEN_UP) for asked in self._open]
            self.close()
        out += self._calls.push(events)
        if any(isinstance(event, agent_events.ToolStarted) for event in events):
            self._shown.set()
        return out

    def close(self) -> None:
        self._is_closed = True
        for asked in self._open:
            _give(asked.waiter, denied(OVER))
            if asked.task is not None:
                asked.task.cancel()

    async def answer(self, call: AskedCall, *, is_own: bool) -> HookAnswer:
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
        self, person: Person, call: AskedCall, started: StartedCall | None, wanted: documents.PermissionRequest
    ) -> HookAnswer:
        waiter: asyncio.Future[HookAnswer] = asyncio.get_running_loop().create_future()
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
        wanted: documents.PermissionRequest,
        waiter: "asyncio.Future[HookAnswer]",
    ) -> _Asked:
        self._count += 1
        about = started.event.call_id if started is not None else "subagent"
        id, question = f"{about} permission {self._count}", permission_question(wanted)
        parent = self._calls.tasks[-1] if started is None and self._calls.tasks else None
        payload = None if too_deep(call.args) else {"tool_name": call.tool, "tool_input": call.args}
        self._put([agent_events.ToolStarted(id, question, payload=payload, waits=True, parent=parent)])
        asked = _Asked(id, question, call, started, waiter)
        asked.task = asyncio.get_running_loop().create_task(self._settle(person, asked, wanted), name=id)
        self._open.append(asked)
        return asked

    async def _settle(self, person: Person, asked: _Asked, wanted: documents.PermissionRequest) -> None:
        question, outcome, decided = asked.question, GIVEN_UP, None
        try:
            decided = await person.permit(asked.id, asked.question)
            outcome = UNDECIDED if decided is None else agent_events.Outcome()
            question = asked.question if decided is None else answered(asked.question, decided)
        finally:
            self._open.remove(asked)
            self._put([agent_events.ToolEnded(asked.id, question, outcome)])
            _give(asked.waiter, self._answer(asked, wanted, decided))

    def _answer(self, asked: _Asked, wanted: documents.PermissionRequest, decided: Permission | None) -> HookAnswer:
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

    def _put(self, events: Sequence[agent_events.AgentEvent]) -> None:
        if not self._is_closed:
            self._out += events
            self.notify()


def _refuse(started: StartedCall | None, outcome: agent_events.Outcome) -> None:
    if started is not None:
        started.refused = outcome


def _with_rules(request: documents.PermissionRequest) -> documents.PermissionRequest | None:
    return request if request.rules else None


def _give(waiter: "asyncio.Future[HookAnswer]", answer: HookAnswer) -> None:
    if not waiter.done():
        waiter.set_result(answer)
