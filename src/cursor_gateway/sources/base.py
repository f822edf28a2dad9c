"""What every source of agent runs offers: a turn in, batches of agent events out; and the models it knows."""

from collections.abc import AsyncGenerator, Hashable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from cursor_gateway.model.actions import Plan, Question
from cursor_gateway.model.agent_events import AgentEvent
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.model.documents import ClarificationAnswer, Mode

TOOLS_SERVER = "caller"  # what most agents are told to call the server of the caller's tools
# Bytes. A line is decoded, told and stored in one piece: that takes eight times its size in memory, and for each
# megabyte about 20 ms in which nobody else is answered.
LONGEST_LINE = 32 * 1024 * 1024


class ToolRunner(Protocol):
    """Whoever gets the work of the caller's tools done."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Cancelled when whoever called no longer waits."""
        ...


class Offered(Struct, frozen=True, kw_only=True):
    """Tools of the caller's. With them the agent's own are not to be used, whether or not any are offered now."""

    server: str  # the name under which the agent knows them
    url: str  # of the gateway's own MCP endpoint; empty: none are offered now
    runner: ToolRunner  # the same tools, for an agent that takes them without an endpoint


class Person(Protocol):
    """Whoever can be asked while the agent waits. What is asked has been told as a `ToolStarted` that `waits`."""

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
        """None: nobody answers; go on without."""
        ...

    async def decide(self, call_id: str, plan: Plan) -> bool | None:
        """Whether the plan is accepted. None: nobody says."""
        ...


class Turn(Struct, frozen=True, kw_only=True):
    """One prompt for an agent, and where it works."""

    run_id: str
    source: str | None = None  # None: the usual one
    prompt: str
    model: str
    mode: Mode = "agent"
    workspace: str  # absolute, and allowed
    folder: str  # ours: lives as long as the conversation, for the agent's configuration, chats and images
    session_id: str | None = None  # the agent's own session, to go on with
    offered: Offered | None = None
    person: Person | None = None  # None: nobody is there to be asked


class Model(Struct, frozen=True):
    id: str
    label: str
    is_default: bool = False


class SourceState(Struct, frozen=True, kw_only=True):
    """For /health, the banner and `doctor`."""

    name: str  # cli, replay, demo
    detail: str  # for people: which program and version, which recordings
    is_demo: bool = False
    missing: str = ""  # why no agent can be started now, where that is known without trying


class Source(Protocol):
    def state(self) -> SourceState: ...

    def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        """What one read of the agent's output meant, batch by batch; the last ends the run.

        Closing the generator, or cancelling who waits for it, ends the agent and all it has started.
        Raises a `GatewayError` where the agent cannot even be started.
        """
        ...

    async def models(self) -> list[Model]:
        """Raises an `AgentError` when the agent does not tell."""
        ...

    def has_session(self, turn: Turn) -> bool:
        """Whether the agent still knows the session that the turn goes on with."""
        ...

    @property
    def holds_questions(self) -> bool:
        """Whether its agent waits for answers (`Turn.person`)."""
        ...

    @property
    def tools_server(self) -> str:
        """What its agent calls the server of the caller's tools."""
        ...

    @property
    def offers_tools(self) -> bool:
        """Whether its agent can be given tools of the caller's, and kept from its own."""
        ...

    def account(self) -> Hashable:
        """Another value whenever its credentials, configuration or program have changed."""
        ...

    def check_model(self, model: str) -> None:
        """Raises `ModelUnavailable` for a name that is known to be wrong; never waits to find out."""
        ...

    async def forget(self, folder: str) -> bool:
        """Deletes what its agents keep outside the folder of a conversation that was deleted.

        Ends agents that would write it again, and waits for runs of others in them. False: something is left.
        """
        ...

    def warm_up(self, workspace: str) -> None:
        """Before anybody asks; returns at once. For sources that keep an agent alive."""

    async def close(self) -> None: ...
