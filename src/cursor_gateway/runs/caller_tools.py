"""What one run's agent asks of others in; calls of the caller's tools, and questions to people, out.

    the agent calls (MCP, held open) ──┐                               ┌─▶ the held call is answered, the agent runs on
    a tool of its own was denied ──────┴─▶ quiet ─▶ pause ─▶ results ──┴─▶ the agent has gone: its next turn has them

`open_calls` decides when a call is shown, answered or owed. This module decides what a call is: whether it matches its
tool's schema, which of the caller's tools replaces a denied tool of the agent, and what the agent reads as the result.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import AgentLooped, AgentUnconfined, GatewayError
from cursor_gateway.model.agent_events import (
    Action,
    CallerToolAnswered,
    CallerToolAsked,
    Command,
    FileEdit,
    OtherTool,
    Outcome,
    Plan,
    Question,
    ToolEnded,
)
from cursor_gateway.model.caller_tools import (
    AutoTool,
    CallerCall,
    NamedTool,
    NoTool,
    Offer,
    RequiredTool,
    Tool,
    ToolResult,
    usable,
)
from cursor_gateway.model.documents import ClarificationAnswer, ClarificationQuestion
from cursor_gateway.model.messages import AssistantMessage, Image, Message, ToolCall, ToolMessage, UserMessage
from cursor_gateway.prompting.replies import check_answers
from cursor_gateway.prompting.structured import Uncheckable, violation
from cursor_gateway.runs import calls as open_calls
from cursor_gateway.runs.calls import OpenCalls
from cursor_gateway.sources.base import TOOLS_SERVER
from cursor_gateway.sources.cursor.native_requests import translate
from cursor_gateway.stages.caller_runs import LoopGuard, ScratchPaths
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.stages.usage import UsageTotal

VIEWER = "view_conversation_image"  # a tool of the gateway's own: the agent cannot open files in such a run
_CHECKED = 100_000  # bytes of arguments
_OF_COMMANDS = frozenset({"COMMAND_FAILED", "TIMEOUT", "INTERRUPTED"})  # it had begun
_HERE = frozenset({"read_file", "list_dir", "grep", "glob_file_search", "codebase_search"})


_CALL, _RUN, _RUN_DIGITS = "call_", "chat_", 32


def call_id(run_id: str, number: int) -> str:
    """An id that names the run of the call. At most 40 characters, as OpenAI allows, for the first 999."""
    return f"{_CALL}{run_id.removeprefix(_RUN)}{number}"


def run_of(call_id: str) -> str | None:
    """The run that made this call, if it has an id of this gateway."""
    digits, number = call_id.removeprefix(_CALL)[:_RUN_DIGITS], call_id[len(_CALL) + _RUN_DIGITS :]
    is_ours = call_id.startswith(_CALL) and len(digits) == _RUN_DIGITS and number.isascii() and number.isdigit()
    return f"{_RUN}{digits}" if is_ours else None


class _Made(Struct):
    call: CallerCall
    made_at: float
    answer: ToolMessage | None = None


class GivenUp(Struct, frozen=True):
    """The agent reports the end of a call that is known here: it was answered with an error, or the agent no longer
    waits for this one."""

    id: str = ""


class Denied(Struct, frozen=True):
    """The agent was denied a tool of its own, and its caller has one in its place: this call was made of it."""

    id: str


ToolEnd: TypeAlias = GivenUp | Denied | GatewayError | None  # None: nothing but what it says


class CallerTools:
    def __init__(self, offer: Offer, *, run_id: str, server: str = TOOLS_SERVER, scratch: str = "") -> None:
        """`server` is what the agent calls the tools' server, `scratch` the folder that it takes for its workspace."""
        self.calls, self.server = OpenCalls(), server
        self.paths = ScratchPaths(scratch)
        self._run_id = run_id
        self._images: dict[str, Image] = {}  # by their names
        self._made: dict[str, _Made] = {}
        self._also: dict[int, list[Message]] = {}  # what else came with results, by the pause that these ended
        self._told_at = 0  # the last pause of which the agent has that
        self._failed: Counter[str] = Counter()  # calls answered with an error that the agent has not reported yet
        self._guard = LoopGuard()
        self._reminders: int | None = 0  # that it must make a call; None: it has made one since the last answer
        self.usage = UsageTotal()
        self._choose(offer)

    def _choose(self, offer: Offer) -> None:
        self.offer = offer
        self._reminders = 0

    @property
    def most(self) -> int | None:
        """How many calls are shown at once."""
        return None if self.offer.parallel else 1

    @property
    def is_owed_a_call(self) -> bool:
        """A call was required, and has not been made."""
        return isinstance(self.offer.choice, RequiredTool | NamedTool) and self._reminders is not None

    @property
    def tools(self) -> Sequence[Tool]:
        """All that the agent may call."""
        if not self._images:
            return usable(self.offer)
        names = {"type": "string", "enum": list(self._images)}
        schema = {"type": "object", "properties": {"name": names}, "required": ["name"]}
        viewer = Tool(self._viewer, "Shows an image of the conversation, by the name that stands there.", schema)
        return [*usable(self.offer), viewer]

    @property
    def _viewer(self) -> str:
        """Not one of the caller's."""
        return f"{VIEWER}_" if any(tool.name == VIEWER for tool in self.offer.tools) else VIEWER

    def show(self, images: Sequence[Image]) -> tuple[str, ...]:
        """The names by which the agent can open these images with the viewer from now on."""
        self._images |= {image.name: image for image in images}
        return tuple(f"{image.name} (the tool `{self._viewer}` of `{self.server}` shows it)" for image in images)

    def knows(self, call_id: str) -> bool:
        """It was shown: now or before."""
        made = self._made.get(call_id)
        return made is not None and (made.answer is not None or call_id in self.calls.shown)

    # --- the agent's side ---------------------------------------------------------------------------

    def make(self, name: str, arguments: dict[str, Any], now: float) -> str | ToolResult:
        """The id of a call of the caller's tool, or its result if it needs no caller."""
        if name == self._viewer and (image := self._images.get(str(arguments.get("name")))) is not None:
            return ToolResult(text="", images=(image,))
        if (wrong := self._wrong(name, arguments)) is not None:
            return self._refused(name, arguments, wrong)
        return self._make(name, arguments, now)

    def tool_ended(self, event: ToolEnded, now: float) -> ToolEnd:
        """What the end of a tool means, of the agent's own or of the caller's."""
        if _ran_here(event.action, event.outcome):
            return AgentUnconfined(
                f"The agent used its own {event.action.tool} tool although it was disabled, so the run was stopped; "
                "update it with `cursor-agent update`, or omit `tools`."
            )
        if event.outcome.state == "completed":
            return None
        if isinstance(event.action, OtherTool) and (given_up := self._gave_up(event.action)) is not None:
            return given_up
        if (meant := translate(event.action, usable(self.offer), scratch=self.paths.folder)) is not None:
            tool, arguments = meant
            return self.loop(tool.name) or Denied(self._make(tool.name, arguments, now))
        return None

    def _gave_up(self, action: OtherTool) -> GivenUp | None:
        """A caller's tool call that the agent reports as failed: answered with an error, or given up."""
        key = CallerCall("", action.tool, action.arguments).key()
        if self._failed[key]:
            self._failed[key] -= 1
            return GivenUp()
        same = [id for id, made in self._made.items() if made.call.key() == key]
        held = [id for id in same if self.calls.state(id) in (open_calls.Call.NEW, open_calls.Call.SHOWN)]
        delivered = [id for id in same if self.calls.state(id) is open_calls.Call.DELIVERED]
        if not held and not delivered:
            return None
        return GivenUp(held[0] if held else delivered[-1])

    def agent_ended(self) -> None:
        """For any reason. What it reports from now on is about other calls."""
        self._failed.clear()

    def owed(self, ids: Sequence[str]) -> list[Message]:
        """The messages of the agent's next turn: these calls with their results, and what else was said with them; or
        that it has to make a call."""
        if self._reminders:
            names = " or ".join(f"`{tool.name}`" for tool in usable(self.offer))
            return [
                UserMessage(
                    f"You have not called a tool, and you must: call {names} of the server `{self.server}` now."
                )
            ]
        messages: list[Message] = []
        for id in ids:
            made = self._made[id]
            assert made.answer is not None
            messages += [AssistantMessage("", (_call(made.call),)), made.answer]
        for pause, also in self._also.items():
            messages += also if pause > self._told_at else ()
        return messages

    def agent_started(self, paused_at: int) -> None:
        """It knows what was said up to this pause, and after it."""
        self._told_at = paused_at

    def history(self, state: RunState) -> list[Message]:
        """What was said, the calls and their results: what a new session has to know of this run."""
        messages: list[Message] = []
        for pause, said, ids in state.rounds():
            made = [self._made[id] for id in ids if id in self._made]
            if said or made:
                messages.append(AssistantMessage(said, tuple(_call(one.call) for one in made)))
            messages += [one.answer for one in made if one.answer is not None]
            messages += self._also.get(pause, ())
        return messages

    def remind(self) -> bool:
        """Tells an agent that ended without the call that it had to make, in its next turn. False: it was told."""
        is_first, self._reminders = not self._reminders, 1
        return is_first

    def _wrong(self, name: str, arguments: dict[str, Any]) -> str | None:
        if isinstance(self.offer.choice, NoTool):
            return "No tool may be called any more; answer with what you have."
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            return f"There is no tool {name!r}; there are {', '.join(tool.name for tool in self.tools)}."
        if len(msgspec.json.encode(arguments)) > _CHECKED:
            return None  # it would take too long, and the caller checks as well
        try:
            wrong = violation(arguments, tool.parameters)
        except Uncheckable:  # then the caller has to check it
            return None
        return f"These arguments do not fit the tool's schema: {wrong}." if wrong else None

    def _refused(self, name: str, arguments: dict[str, Any], wrong: str) -> ToolResult:
        """The model can correct that itself; if it does not, it is in a loop."""
        key = CallerCall("", name, arguments).key()
        note = self._guard.gave(key, wrong)
        self._failed[key] += 1
        return ToolResult(text=f"{wrong}\n\n{note}" if note else wrong, is_error=True)

    def _make(self, name: str, arguments: dict[str, Any], now: float) -> str:
        call = CallerCall(call_id(self._run_id, len(self._made) + 1), name, arguments)
        self._made[call.id] = _Made(call, now)
        self._reminders = None
        return call.id

    def loop(self, name: str) -> AgentLooped | None:
        """Why the agent must not continue, if it only repeats itself."""
        if not self._guard.is_loop:
            return None
        return AgentLooped(
            f"The agent is in a loop: it repeats calls of {name} and others and gets the same results; rephrase the "
            "request, or ask for less at a time."
        )

    # --- the caller's side --------------------------------------------------------------------------

    def asked(self, fresh: Sequence[str]) -> list[CallerToolAsked]:
        """The events with which the run asks the caller to execute these calls."""
        return [CallerToolAsked(self._made[id].call) for id in fresh if id in self._made]

    @property
    def takes_one_call(self) -> bool:
        """A client that forces one call takes its arguments and rarely sends a result, so no agent waits for it."""
        return isinstance(self.offer.choice, NamedTool)

    def new(self, results: Mapping[str, ToolResult]) -> dict[str, ToolResult]:
        """Those of them that are waited for."""
        return {id: results[id] for id in self.calls.shown if id in results and id in self._made}

    def answer(
        self, results: Mapping[str, ToolResult], also: Sequence[Message], offer: Offer | None, pause: int, now: float
    ) -> tuple[list[CallerToolAnswered], dict[str, ToolResult]]:
        """Adds new results, which end this pause. Returns the events for readers and the results for the agent.

        Messages that come with them (`also`) cannot be sent to an agent that is working; they are for its next turn.
        """
        self._choose(offer or replace(self.offer, choice=AutoTool()))  # a choice is for one reply
        events, given = list[CallerToolAnswered](), dict[str, ToolResult]()
        for id, result in results.items():
            made = self._made[id]
            seconds = now - made.made_at
            note = self._guard.gave(made.call.key(), result.text, seconds)
            given[id] = replace(result, text=f"{result.text}\n\n{note}") if note else result
            if result.is_error and self.calls.state(id) is open_calls.Call.SHOWN and not also:
                self._failed[made.call.key()] += 1
            made.answer = ToolMessage(given[id].text, id, made.call.name, self.show(result.images))
            events.append(CallerToolAnswered(id, result, round(seconds * 1000)))
        self._also.setdefault(pause, []).extend(also)
        return events, given


class Questions:
    """One run's. If no answer arrives in time, the agent continues without one."""

    def __init__(self, asked: Mapping[str, Question | Plan] = MappingProxyType({})) -> None:
        self.asked = asked  # and still open, by call

    def call_for(self, answers: Sequence[ClarificationAnswer]) -> str | None:
        """None: no question is open. Raises `InvalidRequest` for answers that match no open question."""
        every: dict[str, ClarificationQuestion] = {}
        for id, asked in self.asked.items():
            if isinstance(asked, Question):
                questions = {question.id: question for question in asked.questions}
                is_meant = any(answer.question_id in questions for answer in answers)
                if is_meant and asked.permission is None:
                    check_answers(questions, answers)
                    return id
                every |= questions
        if every:
            check_answers(every, answers)
        return None

    @property
    def permissions(self) -> dict[str, str]:
        """The calls that wait for permission, by the ids of their questions."""
        found = self.asked.items()
        return {
            asked.questions[0].id: id
            for id, asked in found
            if isinstance(asked, Question) and asked.permission is not None
        }

    @property
    def plan(self) -> str | None:
        """The call that waits for a decision on its plan."""
        return next((id for id, asked in self.asked.items() if isinstance(asked, Plan)), None)

    @property
    def awaited(self) -> str:
        """What to send; empty where nothing is asked."""
        if any(isinstance(asked, Question) and asked.permission is None for asked in self.asked.values()):
            return "send `answers` to its questions"
        if self.plan is not None:
            return "send `plan` to accept or reject its plan"
        return "send `permissions` to allow or deny what it asks for" if self.permissions else ""


def _call(call: CallerCall) -> ToolCall:
    return ToolCall(call.id, call.name, msgspec.json.encode(call.arguments).decode())


def _ran_here(action: Action, outcome: Outcome) -> bool:
    """Whether it acts on this machine. Actions of Cursor's own service, and the agent's own notes, are harmless."""
    if isinstance(action, Command) and (action.exit_code >= 0 or outcome.code in _OF_COMMANDS):
        return True  # also if it failed
    return outcome.state == "completed" and (
        isinstance(action, Command | FileEdit) or (isinstance(action, OtherTool) and action.tool in _HERE)
    )
