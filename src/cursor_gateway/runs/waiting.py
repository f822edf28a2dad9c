"""The open calls of one run, with their timers and futures. `open_calls` decides; this carries it out."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from cursor_gateway.errors import CallerGone, GatewayError
from cursor_gateway.runs.open_calls import (
    Action,
    BeginTurn,
    Call,
    Deliver,
    EndAgent,
    Fail,
    Kind,
    OpenCalls,
    Pause,
    Release,
    StartAnswerTimer,
    StartQuietTimer,
    StopTimer,
)

_LONGEST_GATHERING = 2.0  # seconds: an agent that keeps writing does not delay its calls for longer


class WaitLimits(Struct, frozen=True, kw_only=True):
    answer_seconds: float = 600.0  # how long a caller may take
    quiet_seconds: float = 0.15


class Host(Protocol):
    """The run whose calls these are."""

    @property
    def is_storing(self) -> bool:
        """Whether it waits for the store, and does not read what its agent writes meanwhile."""
        ...

    def pause(self, fresh: Sequence[str], shown: Sequence[str]) -> None:
        """End the reply with the calls that are `shown`, of which these are `fresh`."""
        ...

    def end_agent(self) -> None:
        """Not the run: the agent is started again with what it is owed."""
        ...

    def stop(self, why: GatewayError) -> None: ...


class Waiting:
    """Whether a run waits, for what, since when, and for how long it has waited so far."""

    def __init__(self, limits: WaitLimits, *, asks_others: bool = False) -> None:
        """`asks_others`: not the caller answers, but for example a person at the page."""
        self.asks_others = asks_others
        self.since: float | None = None  # by the loop's clock
        self.seconds = 0.0  # that it has waited, up to the last answer
        self.most: int | None = None  # calls that are shown at once
        self._limits = limits
        self._calls = OpenCalls()
        self._held: dict[str, asyncio.Future[Any]] = {}
        self._answers: Mapping[str, object] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._gathering_since: float | None = None
        self._is_turn_due = asyncio.Event()
        self._host: Host | None = None

    def begin(self, host: Host) -> None:
        self._host = host

    def close(self) -> None:
        """The run is over, or about to be: no more calls are shown."""
        self._do(self._calls.close())
        self._host = None

    def stop(self, why: GatewayError) -> None:
        """Ends the run and shows no more calls, however long its agent takes to exit."""
        host = self._host
        self.close()
        if host is not None:
            host.stop(why)

    @property
    def is_waiting(self) -> bool:
        """For an answer from a caller, not for the agent."""
        return self.since is not None

    @property
    def shown(self) -> tuple[str, ...]:
        """Calls that can be answered now."""
        return self._calls.shown

    @property
    def has_open(self) -> bool:
        return bool(self._calls.open)

    def state(self, id: str) -> Call | None:
        return self._calls.state(id)

    # --- the agent's side ---------------------------------------------------------------------------

    async def ask(self, id: str, kind: Kind) -> Any:
        """The answer, or None if there will be none. Cancelling this abandons the call."""
        held = self._held[id] = asyncio.get_running_loop().create_future()
        self._do(self._calls.make(id, kind))
        try:
            return await held
        except asyncio.CancelledError:
            self._do(self._calls.give_up(id))
            raise
        finally:
            del self._held[id]

    def ask_detached(self, id: str) -> None:
        """A call for which the agent does not wait."""
        self._do(self._calls.make(id, Kind.TOOL, held=False))

    def wrote(self) -> None:
        self._do(self._calls.wrote())

    def give_up(self, id: str) -> None:
        self._do(self._calls.give_up(id))

    def end_agent(self) -> None:
        self._do(self._calls.end_agent())

    def agent_ended(self, unused: Iterable[str] = ()) -> None:
        self._do(self._calls.agent_ended(unused))

    def resumed(self) -> None:
        """The agent's next turn begins."""
        self._calls.resumed()

    async def turn_due(self) -> tuple[str, ...]:
        """Waits until the agent can be started again, and says which answers it is owed."""
        await self._is_turn_due.wait()
        self._is_turn_due.clear()
        return self._calls.owed

    # --- the other side -----------------------------------------------------------------------------

    def answer(self, answers: Mapping[str, object], *, says_more: bool = False) -> None:
        self._answers = answers
        self._do(self._calls.answer(answers, says_more=says_more))
        self._answers = {}

    # --- carrying out -------------------------------------------------------------------------------

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case StartQuietTimer():
                    self._start_quiet_timer()
                case StartAnswerTimer():
                    self.since = asyncio.get_running_loop().time()
                    self._start_timer(self._limits.answer_seconds, self._expired)
                case StopTimer():
                    self._stop_timer()
                case Pause(fresh=fresh, shown=shown):
                    if self._host is not None:
                        self._host.pause(fresh, shown)
                case Deliver(id=id):
                    self._settle(id, self._answers[id])
                case Release(id=id):
                    self._settle(id, None)
                case EndAgent():
                    if self._host is not None:
                        self._host.end_agent()
                case BeginTurn():
                    self._is_turn_due.set()
                case Fail():
                    if self._host is not None:
                        self._host.stop(
                            CallerGone(
                                f"No tool results arrived within {self._limits.answer_seconds:g} s; to continue, "
                                "send them with the whole conversation, or raise `answer_seconds`."
                            )
                        )
        if self.since is not None and not self._calls.is_waiting:
            self.seconds += asyncio.get_running_loop().time() - self.since
            self.since = None

    def _settle(self, id: str, answer: object) -> None:
        held = self._held.get(id)
        if held is not None and not held.done():
            held.set_result(answer)

    def _start_quiet_timer(self) -> None:
        now = asyncio.get_running_loop().time()
        since = self._gathering_since if self._gathering_since is not None else now
        left = since + _LONGEST_GATHERING - now
        self._start_timer(max(0.0, min(self._limits.quiet_seconds, left)), self._is_quiet)
        self._gathering_since = since

    def _start_timer(self, seconds: float, fired: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, fired)

    def _stop_timer(self) -> None:
        self._gathering_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_quiet(self) -> None:
        if self._host is not None and self._host.is_storing:
            # The agent may have written more before it made its calls, and that comes first.
            self._start_timer(self._limits.quiet_seconds, self._is_quiet)
        else:
            self._do(self._calls.quiet(self.most))

    def _expired(self) -> None:
        self._do(self._calls.expire())
