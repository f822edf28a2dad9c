"""One run's calls of its caller's tools: what the agent asks for in; pauses, and results for the agent, out.

    the agent calls (MCP, held open) ─┐                       ┌─▶ the held call is answered, the agent goes on
    a tool of its own was denied ─────┴▶ quiet ▶ a pause ▶ results ┴─▶ the agent has gone: it is started again with them

Calls that are made together are told together: a pause waits until it has been quiet for a moment. After it the run
is its caller's turn, which has a time limit of its own; what is not answered is asked for again with the next pause.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.core.actions import Action, Command, FileEdit, OtherTool, Outcome
from cursor_gateway.core.agent_events import AgentEvent, CallerToolAnswered, CallerToolAsked, ToolEnded
from cursor_gateway.core.caller_tools import (
    AnyTool,
    CallerCall,
    NamedTool,
    NoTool,
    Offer,
    SomeTool,
    Tool,
    ToolResult,
    usable,
)
from cursor_gateway.core.images import Image
from cursor_gateway.core.loops import LoopGuard
from cursor_gateway.core.native_requests import translate
from cursor_gateway.core.prompt import AssistantMessage, Call, Message, ToolMessage, UserMessage
from cursor_gateway.core.structured import Uncheckable, violation
from cursor_gateway.errors import AgentLooped, AgentUnconfined, CallerGone, GatewayError
from cursor_gateway.runs.repeats import call_id
from cursor_gateway.sources.base import TOOLS_SERVER

VIEWER = "view_conversation_image"  # a tool of the gateway's own: the agent cannot open files in such a run
_LONGEST_GATHERING = 2.0  # seconds: an agent that goes on talking beside its calls does not keep them back
_CHECKED = 100_000  # bytes of arguments
_OF_COMMANDS = frozenset({"COMMAND_FAILED", "TIMEOUT", "INTERRUPTED"})  # it had begun
_HERE = frozenset({"read_file", "list_dir", "grep", "glob_file_search", "codebase_search"})


class CallerLimits(Struct, frozen=True, kw_only=True):
    answer_seconds: float = 600.0  # how long a caller may take
    quiet_seconds: float = 0.15


class Driver(Protocol):
    """The run, as its calls see it."""

    def tell(self, events: Sequence[AgentEvent]) -> None: ...

    def pause(self, events: Sequence[AgentEvent]) -> int:
        """Tells these, then that the run waits. Returns the number of that event."""
        ...

    def break_off(self) -> None:
        """Ends the agent, not the run: the agent is started again with the results."""
        ...

    def stop(self, why: GatewayError) -> None: ...


class _Open(Struct):
    call: CallerCall
    asked_at: float
    held: asyncio.Future[ToolResult] | None  # None: the agent no longer waits for it
    given: ToolMessage | None = None  # what it was answered with
    is_told: bool = False  # to the caller


class CallerTools:
    def __init__(
        self, offer: Offer, limits: CallerLimits, *, run_id: str, server: str = TOOLS_SERVER, scratch: str = ""
    ) -> None:
        """`server` is what the agent calls the tools' server, `scratch` the folder that it takes for its workspace."""
        self.offer, self._limits, self.server, self._scratch = offer, limits, server, scratch
        self._run_id, self._calls = run_id, 0  # how many were made
        self.waiting_since: float | None = None  # of the loop's clock
        self.waited = 0.0  # seconds, up to the last answer
        self.paused_at = 0  # the number of the last pause
        self.was_called = False  # since the last answer
        self.has_stopped_run = False  # whatever the agent still says, the run has failed
        self.happened: list[Message] = []  # calls and results: what a new session has to be told of this run
        self._images: dict[str, Image] = {}  # by their names
        self._open: dict[str, _Open] = {}  # in the order in which they were asked
        self._answered: dict[str, int] = {}  # and the pause before each
        self._returned: list[Message] = []  # for an agent that is to be started again
        self._complete = asyncio.Event()  # nothing is missing for that
        self._failed: Counter[str] = Counter()  # calls that were answered with an error, until the agent reports them
        self._given: dict[str, _Open] = {}  # those that were answered otherwise, the last of each
        self._guard = LoopGuard()
        self._driver: Driver | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gathering_since: float | None = None
        self._said: Callable[[], str] = lambda: ""
        self._was_reminded = False

    def begin(self, driver: Driver, said: Callable[[], str]) -> None:
        """`said` gives what the agent has said since it was asked last."""
        self._driver, self._said = driver, said

    def close(self) -> None:
        """The run is over: whoever waits here waits no longer."""
        self._driver = None
        self._stop_timer()
        for open in self._open.values():
            if open.held is not None and not open.held.done():
                open.held.set_result(ToolResult(text="The run is over.", is_error=True))
        self._open.clear()
        self.waiting_since = None

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    @property
    def is_owed_a_call(self) -> bool:
        """A call was required, and has not been made."""
        return isinstance(self.offer.choice, SomeTool | NamedTool) and not self.was_called

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
        """How the agent is told of these images, from now on to be seen with the viewer."""
        self._images |= {image.name: image for image in images}
        return tuple(f"{image.name} (the tool `{self._viewer}` of `{self.server}` shows it)" for image in images)

    @property
    def call_ids(self) -> tuple[str, ...]:
        """Those that the caller has been told."""
        return tuple(id for id, open in self._open.items() if open.is_told)

    def knows(self, call_id: str) -> bool:
        return call_id in self._answered or (call_id in self._open and self._open[call_id].is_told)

    # --- the agent's side ---------------------------------------------------------------------------

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """What the caller's tool gives. To cancel this is to give the call up: its result then comes another way."""
        if name == self._viewer and (image := self._images.get(str(arguments.get("name")))) is not None:
            return ToolResult(text="", images=(image,))
        if (wrong := self._wrong(name, arguments)) is not None:
            return self._refused(name, arguments, wrong)
        held: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        open = self._ask(name, arguments, held)
        try:
            return await held
        except asyncio.CancelledError:
            if open.held is held:
                self._give_again(open)
            raise

    def heard(self) -> None:
        """The agent goes on talking: perhaps it has not called all that it wants to."""
        if self._gathering_since is not None:
            self._gather()

    def took(self, event: ToolEnded) -> bool:
        """Whether this end of a tool is no news: of a call that is known here."""
        if _ran_here(event.action, event.outcome):
            self._stop(
                AgentUnconfined(
                    f"The agent used its own {event.action.tool} although it was denied, so the run was ended; "
                    "update it with `cursor-agent update`, or leave `tools` out."
                )
            )
            return False
        if event.outcome.state == "completed":
            return False
        if isinstance(event.action, OtherTool) and self._gave_up(event.action):
            return True
        if (meant := translate(event.action, usable(self.offer), scratch=self._scratch)) is not None:
            tool, arguments = meant
            self._ask(tool.name, arguments, None)
            self.break_off()
        return False

    def _gave_up(self, action: OtherTool) -> bool:
        """A call of ours that the agent reports as failed: answered with an error, or given up."""
        key = CallerCall("", action.tool, action.arguments).key()
        if self._failed[key]:
            self._failed[key] -= 1
            return True
        held = (open for open in self._open.values() if open.held is not None and open.call.key() == key)
        if (open := next(held, None) or self._given.get(key)) is not None:
            self._give_again(open)
            return True
        return False

    def _give_again(self, open: _Open) -> None:
        """The agent has not taken it: it is started again with what it missed."""
        self.break_off()
        if open.given is not None:  # the answer had just come
            self._given.pop(open.call.key(), None)
            self._returned += [AssistantMessage("", (_call(open.call),)), open.given]
            if not self._open:
                self._complete.set()

    def agent_gone(self) -> None:
        """It has ended, however: what it had asked for is still wanted."""
        self._failed.clear()
        self._given.clear()
        for open in self._open.values():
            open.held = None

    def break_off(self) -> None:
        self.agent_gone()
        if self._driver is not None:
            self._driver.break_off()

    async def returned(self) -> list[Message]:
        """What the agent is to be told, as soon as nothing of it is missing."""
        await self._complete.wait()
        self._complete.clear()
        returned, self._returned = self._returned, []
        return returned

    def reminder(self) -> list[Message] | None:
        """For an agent that ended without the call that it had to make; None the second time."""
        if self._was_reminded:
            return None
        self._was_reminded = True
        names = " or ".join(f"`{tool.name}`" for tool in usable(self.offer))
        return [
            UserMessage(f"You have not called a tool, and you must: call {names} of the server `{self.server}` now.")
        ]

    def _wrong(self, name: str, arguments: dict[str, Any]) -> str | None:
        if isinstance(self.offer.choice, NoTool):
            return "No tool may be called any more; answer with what you have."
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            return f"There is no tool {name!r}; there are {', '.join(tool.name for tool in self.tools)}."
        if len(msgspec.json.encode(arguments)) > _CHECKED:
            return None  # it would take too long, and whoever runs the tool checks as well
        try:
            wrong = violation(arguments, tool.parameters)
        except Uncheckable:  # then it is the caller's to judge
            return None
        return f"These arguments do not fit the tool's schema: {wrong}." if wrong else None

    def _refused(self, name: str, arguments: dict[str, Any], wrong: str) -> ToolResult:
        """The model can mend that itself; if it does not, it goes round in circles."""
        key = CallerCall("", name, arguments).key()
        note = self._guard.gave(key, wrong)
        self._failed[key] += 1
        self._check_loop(name)
        return ToolResult(text=f"{wrong}\n\n{note}" if note else wrong, is_error=True)

    def _ask(self, name: str, arguments: dict[str, Any], held: "asyncio.Future[ToolResult] | None") -> _Open:
        self._check_loop(name)
        self._calls += 1
        call = CallerCall(call_id(self._run_id, self._calls), name, arguments)
        self._open[call.id] = open = _Open(call, asyncio.get_running_loop().time(), held)
        self.was_called = True
        self._gather()
        return open

    def _check_loop(self, name: str) -> None:
        if self._guard.is_loop:
            self._stop(
                AgentLooped(
                    f"The agent goes round in circles: it calls {name} and others again and again and is given the "
                    "same; ask in another way, or for less at once."
                )
            )

    def _stop(self, why: GatewayError) -> None:
        """Nothing more is asked of the caller, however long the agent takes to go."""
        driver, self._driver = self._driver, None
        self._stop_timer()
        if driver is not None:
            self.has_stopped_run = True
            driver.stop(why)

    # --- pauses -------------------------------------------------------------------------------------

    def _gather(self) -> None:
        if self.waiting_since is not None or self._driver is None:
            return  # it is told with the next pause
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._gathering_since is None:
            self._gathering_since = now
        self._stop_timer()
        left = self._gathering_since + _LONGEST_GATHERING - now
        self._timer = loop.call_later(max(0.0, min(self._limits.quiet_seconds, left)), self._pause)

    def _pause(self) -> None:
        assert self._driver is not None
        self._gathering_since = None
        most = None if self.offer.parallel else 1
        asked = list(self._open.values())[:most]
        fresh = [open.call for open in asked if not open.is_told]
        if fresh:
            self.happened.append(AssistantMessage(self._said(), tuple(map(_call, fresh))))
        for open in asked:
            open.is_told = True
        self.paused_at = self._driver.pause([CallerToolAsked(call) for call in fresh])
        loop = asyncio.get_running_loop()
        self.waiting_since = loop.time()
        self._timer = loop.call_later(self._limits.answer_seconds, self._expire)
        if isinstance(self.offer.choice, NamedTool):
            # Who asks for one call and no other takes its arguments and rarely comes back: no process waits for that.
            self.break_off()

    def _expire(self) -> None:
        self._stop(
            CallerGone(
                f"Nobody brought the results of the tool calls within {self._limits.answer_seconds:g} s; send them "
                "with the whole conversation to go on, or raise `answer_seconds`."
            )
        )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- the caller's side --------------------------------------------------------------------------

    def new(self, results: Mapping[str, ToolResult]) -> dict[str, ToolResult]:
        """Those of them that are waited for."""
        return {id: result for id, result in results.items() if id in self._open and self._open[id].is_told}

    def answer(
        self, results: Mapping[str, ToolResult], also: Sequence[Message] = (), offer: Offer | None = None
    ) -> int:
        """The number of the pause that these results end. Those that are known are left as they are.

        What a caller says beside them (`also`) cannot be told to an agent that is in the middle of its work, so that
        one is ended, and started again with all of it.
        """
        new = self.new(results)
        if not new:
            return min(self._answered[id] for id in results if id in self._answered)
        now, place = asyncio.get_running_loop().time(), self.paused_at
        if self.waiting_since is not None:
            self.waited += now - self.waiting_since
        self.waiting_since = self._gathering_since = None
        self._stop_timer()
        self.offer = offer or replace(self.offer, choice=AnyTool())  # a choice is for one reply
        self.was_called = self._was_reminded = False
        if also:
            self.break_off()
        events = []
        for id, result in new.items():
            open = self._open.pop(id)
            self._answered[id] = place
            seconds = now - open.asked_at
            note = self._guard.gave(open.call.key(), result.text, seconds)
            given = replace(result, text=f"{result.text}\n\n{note}") if note else result
            events.append(CallerToolAnswered(id, result, round(seconds * 1000)))
            told = ToolMessage(given.text, id, open.call.name, self.show(result.images))
            self.happened.append(told)
            open.given = told
            if open.held is None:
                self._returned += [AssistantMessage("", (_call(open.call),)), told]
            elif not open.held.done():
                if given.is_error:
                    self._failed[open.call.key()] += 1
                else:
                    self._given[open.call.key()] = open
                open.held.set_result(given)
        self._returned += also
        self.happened += also
        if self._driver is not None:
            self._driver.tell(events)
        if self._open:
            self._gather()
        elif self._returned:
            self._complete.set()
        return place


def _call(call: CallerCall) -> Call:
    return Call(call.id, call.name, msgspec.json.encode(call.arguments).decode())


def _ran_here(action: Action, outcome: Outcome) -> bool:
    """On this machine; what Cursor's own service does, and notes that the agent makes for itself, harm nobody."""
    if isinstance(action, Command) and (action.exit_code >= 0 or outcome.code in _OF_COMMANDS):
        return True  # also if it failed
    return outcome.state == "completed" and (
        isinstance(action, Command | FileEdit) or (isinstance(action, OtherTool) and action.tool in _HERE)
    )
