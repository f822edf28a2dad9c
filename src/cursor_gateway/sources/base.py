"""The protocol of a source of agent runs: a turn in, batches of agent events out; and the models it offers."""

from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from cursor_gateway.model.agent_events import AgentEvent, Plan, Question
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.model.documents import ClarificationAnswer, Mode

TOOLS_SERVER = "caller"  # the default name of the MCP server with the caller's tools
# Bytes. A line is decoded, encoded and stored in one piece: that takes eight times its size in memory, and blocks the
# event loop for about 20 ms per megabyte.
LONGEST_LINE = 32 * 1024 * 1024


class ToolRunner(Protocol):
    """Runs the caller's tools, usually by asking the caller."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Cancelled when the agent no longer waits for the result."""
        ...


class OfferedTools(Struct, frozen=True, kw_only=True):
    """The caller's tools. In such a run the agent's own tools are disabled, even if none are offered right now."""

    server: str  # the MCP server's name, as the agent sees it
    url: str  # of the gateway's own MCP endpoint; empty: none are offered now
    runner: ToolRunner  # the same tools, for an agent that takes them without an endpoint


class Person(Protocol):
    """Answers the agent's questions while it waits. Each was reported before, as a `ToolStarted` with `waits`."""

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
        """None: no answer; continue without one."""
        ...

    async def decide(self, call_id: str, plan: Plan) -> bool | None:
        """Whether the plan is accepted. None: no decision."""
        ...

    async def permit(self, call_id: str, question: Question) -> Permission | None:
        """Whether the agent may do what the question asks for. None: no decision, which allows nothing."""
        ...


def never() -> bool:
    return False


class AgentUse(Struct, frozen=True):
    """What an agent, and all that it started, has used."""

    cpu_seconds: float
    memory_bytes: int | None = None  # at its peak; None: unknown
    out_of_memory: int = 0  # processes that the system has ended because of the agent's limit


class Turn(Struct, frozen=True, kw_only=True):
    """One prompt for an agent, and where it works."""

    run_id: str
    source: str | None = None  # None: the default source
    prompt: str
    model: str
    mode: Mode = "agent"
    workspace: str  # absolute, and allowed
    folder: str  # the gateway's own, kept as long as the conversation: the agent's configuration, chats and images
    session_id: str | None = None  # the agent's own session, to resume
    offered: OfferedTools | None = None
    person: Person | None = None  # None: the agent must not ask questions
    approver: Person | None = None  # decides about what no rule allows: the person, or somebody else than the caller
    is_waiting: Callable[[], bool] = never  # whether it waits for the person now
    uses: list[AgentUse] = []  # what its agent has used is added when it has ended, if that is known of this turn alone
    allow: Sequence[str] = ()  # rules that its owner has allowed, such as `Shell(npm)`; without effect with `offered`
    owner: str = ""  # whose it is: nothing that is prepared for one owner is used for another
    next_folder: str = ""  # for the next conversation, if an agent is started for it in advance; not made yet


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
    holds_questions: bool  # whether its agent waits for answers (`Turn.person`)
    asks_by_default: bool = True  # also where the caller does not say whether somebody can answer
    tools_server: str  # the name of the MCP server with the caller's tools, as its agent sees it
    offers_tools: bool  # whether its agent can be given the caller's tools and kept from its own

    def state(self) -> SourceState: ...

    def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        """Yields the events of each read of the agent's output; the last batch ends the run.

        Closing the generator, or cancelling the task that iterates it, ends the agent and every process it started.
        Raises a `GatewayError` if the agent cannot be started.
        """
        ...

    async def models(self) -> list[Model]:
        """Raises an `AgentError` if the agent cannot list them."""
        ...

    def has_session(self, turn: Turn) -> bool:
        """Whether the agent still has the session that the turn resumes."""
        ...

    def account(self) -> Hashable:
        """Changes whenever its credentials, configuration or program change."""
        ...

    def check_model(self, model: str) -> None:
        """Raises `ModelUnavailable` for a name that is known to be wrong. Never waits."""
        ...

    async def forget(self, folder: str) -> bool:
        """Deletes what its agents keep of a deleted conversation outside its folder.

        Ends agents that would write it again, after other conversations' runs in them are over. Returns False if
        something is left.
        """
        return True

    def warm_up(self, workspace: str) -> None:
        """Starts an agent in advance, in sources that keep agents alive. Returns at once."""
        return

    @property
    def has_spares(self) -> bool:
        """Whether `claim_spare` may return something."""
        return False

    def claim_spare(self, turn: Turn) -> str | None:
        """The folder of an agent that was started in advance for such a turn, which begins a conversation and has no
        folder yet. The conversation must be in this folder then."""
        return None

    async def end_spares(self) -> None:
        """Ends the agents that wait for a prompt, and starts no others in advance: the gateway is shutting down."""
        return

    async def close(self) -> None:
        return
