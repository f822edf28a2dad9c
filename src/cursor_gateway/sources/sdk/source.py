"""A turn in; an agent of the SDK's, asked by way of the one bridge, and what it does as agent events, out."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import (
    AgentOutputTooLarge,
    AgentUnauthenticated,
    Failure,
    GatewayError,
    SessionLost,
    readable_details,
    unknown_model,
)
from cursor_gateway.model.agent_events import AgentEvent, RunFailed
from cursor_gateway.sources.base import Model, SourceState, Turn
from cursor_gateway.sources.cursor.configuration import unusable
from cursor_gateway.sources.cursor.confinement import empty_workspace
from cursor_gateway.sources.cursor.models import ModelCache, is_known, nearest
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.leftovers import NotedSession, note_session, noted_sessions
from cursor_gateway.sources.private_files import data_of
from cursor_gateway.sources.sdk.bridge import MODULE, VERSION, Bridge, BridgeOptions, Bridges, missing_sdk
from cursor_gateway.sources.sdk.decoder import CALLERS_SERVER, SdkDecoder
from cursor_gateway.sources.sdk.failures import error_of, failure_of, reported
from cursor_gateway.sources.sdk.feed import Feed
from cursor_gateway.sources.sdk.held import HeldCalls
from cursor_gateway.sources.sdk.requests import allowed_tools, denied_tools, mode_of, selection
from cursor_gateway.sources.sdk.tools import definitions
from cursor_gateway.sources.sdk.updates import plain, size_of

if TYPE_CHECKING:
    from cursor_sdk import AgentOptions, CustomTool, CustomToolContext, SendOptions

_MOST_LOST = 10_000


class SdkOptions(Struct, frozen=True, kw_only=True):
    bridge: BridgeOptions = BridgeOptions()
    force: bool = False  # the agent may run commands, visit pages and start other agents: it asks nobody
    models_seconds: float = 600.0
    max_output_bytes: int = 256 * 1024 * 1024  # of one turn
    cancel_seconds: float = 5.0  # for each thing that the bridge is told when a run ends


def unavailable(environ: Mapping[str, str]) -> GatewayError | None:
    """Why there can be no such source here; None: there can."""
    if find_spec(MODULE) is None:
        return missing_sdk()
    if not environ.get("CURSOR_API_KEY"):
        return AgentUnauthenticated(
            "Cursor's SDK needs an API key; set CURSOR_API_KEY (cursor.com/dashboard, Integrations)."
        )
    return None


class CursorSdkSource:
    tools_server: ClassVar[str] = CALLERS_SERVER  # what its agent calls the caller's tools, whoever offers them

    def __init__(
        self, options: SdkOptions, environ: Mapping[str, str], ledger: Ledger, clock: Callable[[], float]
    ) -> None:
        self._options, self._environ = options, environ
        self._bridges = Bridges(options.bridge, environ, ledger)
        self._models = ModelCache(self._list_models, options.models_seconds, clock)
        self._lost: dict[str, None] = {}  # sessions, the latest last
        self._leaving: dict[str, asyncio.Task[None]] = {}  # by session: the end of its last turn
        self._beside: set[asyncio.Task[None]] = set()

    async def probe(self) -> str:
        """The bridge's version; starts it. Raises a `GatewayError`."""
        self._key()
        bridge = await self._bridges.get()
        told = await self._told(bridge, bridge.client.get_version())
        return str(told.get("bridgeVersion", ""))

    def state(self) -> SourceState:
        bridge = self._bridges.current
        running = "its bridge is not started yet" if bridge is None else f"its bridge runs as process {bridge.pid}"
        return SourceState(name="sdk", detail=f"cursor-sdk {VERSION}, {running}")

    async def models(self) -> list[Model]:
        return await self._models.get()

    def has_session(self, turn: Turn) -> bool:
        """Only the bridge could tell, and does when the session is resumed: what it has told is known."""
        return turn.session_id not in self._lost

    @property
    def holds_questions(self) -> bool:
        return False  # nothing in the bridge's protocol could answer one

    @property
    def offers_tools(self) -> bool:
        return True

    def account(self) -> str | None:
        return self._environ.get("CURSOR_API_KEY")

    def check_model(self, model: str) -> None:
        models = self._models.peek()
        if models is not None and not is_known(model, models):
            raise unknown_model(model, nearest(model, models))

    async def forget(self, folder: str) -> bool:
        """In the SDK's own store, which it shares with others: only the SDK can delete there."""
        sessions = noted_sessions(Path(folder), "sdk")
        if not sessions:
            return True
        if leaving := [self._leaving[one.id] for one in sessions if one.id in self._leaving]:
            await asyncio.wait(leaving)
        try:
            bridge = await self._bridges.get()
            for session in sessions:
                with suppress(SessionLost):  # it is gone already
                    options = {"cwd": session.workspace, "apiKey": self._key()}
                    await self._told(bridge, bridge.client.agents.delete(session.id, options))
        except GatewayError:
            return False
        return True

    def warm_up(self, workspace: str) -> None:
        """The bridge is started by who asks for the models, which a server does at once."""

    async def close(self) -> None:
        await self._models.close()
        while ends := [*self._leaving.values(), *self._beside]:
            await asyncio.wait(ends)
        await self._bridges.close()

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        key = self._key()
        if turn.session_id is not None and (last := self._leaving.get(turn.session_id)) is not None:
            await asyncio.wait([last])
        held = HeldCalls(turn.offered.runner) if turn.offered is not None else None
        opening = asyncio.get_running_loop().create_task(self._open(turn, held, key), name=f"opening {turn.run_id}")
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._do_beside(self._abandon(opening))
            raise
        if isinstance(opened, Failure):
            yield [RunFailed(failure=opened)]
            return
        async with aclosing(self._follow(turn, opened, held)) as batches:
            async for batch in batches:
                yield batch

    async def _follow(
        self, turn: Turn, opened: "_Opened", held: HeldCalls | None
    ) -> AsyncGenerator[Sequence[AgentEvent], None]:
        clock, agent = asyncio.get_running_loop().time, opened.agent
        model = agent.model.id if agent.model is not None else turn.model
        decoder = SdkDecoder(agent.agent_id, model, offers_tools=turn.offered is not None)
        feed = Feed(agent, turn.prompt, lambda force: _send_options(turn, force=force))
        size, most = 0, self._options.max_output_bytes
        try:
            while not decoder.finished and (events := await feed.next()):
                for event in events:
                    update = plain(event)
                    size += size_of(update)
                    if size > most:
                        raise AgentOutputTooLarge(
                            f"The agent wrote more than {most} bytes; ask for less at once, or raise "
                            "`max_output_bytes`."
                        )
                    decoder.push(event.kind, update, clock() * 1000)
                if batch := decoder.take():
                    yield batch
            if not decoder.finished:
                yield decoder.flush(
                    None if feed.error is None else await self._failure(opened.bridge, feed.error, turn.model)
                )
        finally:
            leaving = self._do_beside(self._leave(opened, feed, held, is_over=decoder.finished))
            self._leaving[agent.agent_id] = leaving
            leaving.add_done_callback(lambda task: self._left(agent.agent_id, task))
            await asyncio.shield(leaving)  # who is cancelled here, too, does not keep it from its end

    # --- an agent, from its beginning to its end ------------------------------------------------------

    async def _open(self, turn: Turn, held: HeldCalls | None, key: str) -> "_Opened | Failure":
        """A new agent, or the one that the turn goes on with. Raises a `GatewayError` where there is no bridge.

        That the bridge has died since it was used last may only be noticed here, so it is tried once more.
        """
        for is_last in (False, True):
            bridge = await self._bridges.get()
            folder = _workspace(turn)
            options = _agent_options(turn, folder, held, key, force=self._options.force)
            try:
                if turn.session_id is None:
                    opened = _Opened(bridge, await bridge.client.create_agent(options), folder)
                else:
                    opened = _Opened(bridge, await bridge.client.resume_agent(turn.session_id, options), folder)
            except Exception as error:  # noqa: BLE001 -- of the SDK's, or what it did not foresee
                told, failure = reported(error), await self._failure(bridge, error, turn.model)
                if bridge.is_gone and told.is_transport and not told.is_slow and not is_last:
                    continue
                if failure.code == SessionLost.code and turn.session_id is not None:
                    self._forget(turn.session_id)
                return failure
            _note(turn, opened)
            return opened
        raise AssertionError("the last try returns")

    async def _abandon(self, opening: "asyncio.Task[_Opened | Failure]") -> None:
        """Nobody waits for this agent any more."""
        await asyncio.wait([opening])
        if opening.cancelled() or opening.exception() is not None:
            return
        if not isinstance(opened := opening.result(), Failure):
            await self._bounded(opened, opened.agent.close())

    async def _leave(self, opened: "_Opened", feed: Feed, held: HeldCalls | None, *, is_over: bool) -> None:
        """What a run leaves behind is ended: to stop reading its stream does not cancel it."""
        try:
            if not is_over:
                await self._bounded(opened, self._cancel(opened, feed))
        finally:
            if held is not None:  # not before: an agent whose calls come to nothing would go on without them
                held.end()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(feed.over(), self._options.cancel_seconds)
        finally:
            await feed.end()
        await self._bounded(opened, opened.agent.close())

    async def _cancel(self, opened: "_Opened", feed: Feed) -> None:
        client, agent_id = opened.bridge.client, opened.agent.agent_id
        if feed.is_over:
            return
        if feed.run is not None and feed.run.id:
            await client.cancel_run(feed.run.id, agent_id=agent_id)
            return
        # It has not said yet what it is called.
        for run in (await client.list_runs(agent_id, runtime="local", cwd=opened.folder)).items:
            if run.status == "running":
                await client.cancel_run(run.id, agent_id=agent_id)

    async def _bounded(self, opened: "_Opened", telling: Coroutine[Any, Any, None]) -> None:
        """Nobody waits for the answer; a bridge that gives none is replaced."""
        if opened.bridge.is_gone:
            telling.close()
            return
        try:
            await asyncio.wait_for(telling, self._options.cancel_seconds)
        except TimeoutError:
            await self._bridges.replace_broken(opened.bridge)
        except Exception as error:  # noqa: BLE001 -- a run that has just ended, an agent that is gone
            if reported(error).is_transport:
                await self._bridges.replace_broken(opened.bridge)

    def _do_beside(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def _left(self, agent_id: str, task: "asyncio.Task[None]") -> None:
        if self._leaving.get(agent_id) is task:
            del self._leaving[agent_id]

    def _forget(self, session_id: str) -> None:
        self._lost[session_id] = None
        if len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]

    # --- what goes wrong ------------------------------------------------------------------------------

    async def _failure(self, bridge: Bridge, error: Exception, model: str) -> Failure:
        told = reported(error)
        failure = failure_of(told)
        if (found := await self._of_the_bridge(bridge, error)) is not None and not told.is_transport:
            return found.failure()
        if found is not None and bridge.stderr_tail:
            return replace(failure, details=readable_details(f"{failure.details}\n{bridge.stderr_tail}"))
        if told.sdk_code == "invalid_model":
            unknown = unknown_model(model, nearest(model, self._models.peek() or []))
            unknown.details = failure.details
            return unknown.failure()
        return failure

    async def _of_the_bridge(self, bridge: Bridge, error: Exception) -> GatewayError | None:
        """Whether it is the bridge that fails, and not what it was asked for."""
        told = reported(error)
        if told.is_transport or told.may_be_the_bridge:
            return await self._bridges.replace_broken(bridge)
        return None

    async def _told(self, bridge: Bridge, asking: Coroutine[Any, Any, Any]) -> Any:
        """Raises a `GatewayError`."""
        try:
            return await asking
        except Exception as error:
            found = await self._of_the_bridge(bridge, error)
            raise (found or error_of(reported(error))) from error

    async def _list_models(self) -> list[Model]:
        key = self._key()
        bridge = await self._bridges.get()
        models = await self._told(bridge, bridge.client.list_models(api_key=key))
        return [Model(model.id, model.display_name or model.id) for model in models]

    def _key(self) -> str:
        if (missing := unavailable(self._environ)) is not None:
            raise missing
        return self._environ["CURSOR_API_KEY"]


class _Opened(Struct, frozen=True):
    bridge: Bridge
    agent: Any  # an AsyncAgent
    folder: str  # it works in


def _workspace(turn: Turn) -> str:
    """With tools of the caller's it is an empty folder, as it is for the CLI."""
    if turn.offered is None:
        return turn.workspace
    try:
        return empty_workspace(turn)
    except OSError as error:
        raise unusable(error) from error


def _note(turn: Turn, opened: _Opened) -> None:
    """The SDK keeps its agents in a store of its own."""
    try:
        note_session(Path(turn.folder), data_of(turn.folder), NotedSession("sdk", opened.agent.agent_id, opened.folder))
    except OSError as error:
        raise unusable(error) from error


def _agent_options(turn: Turn, folder: str, held: HeldCalls | None, key: str, *, force: bool) -> "AgentOptions":
    from cursor_sdk import AgentOptions, LocalAgentOptions

    tools = _custom_tools(turn, held) if held is not None else {}
    return AgentOptions(
        model=selection(turn.model),
        api_key=key,
        local=LocalAgentOptions(cwd=folder, custom_tools=tools or None),
        tools=allowed_tools(turn),
        disallowed_tools=denied_tools(force=force),
    )


def _custom_tools(turn: Turn, held: HeldCalls) -> "dict[str, CustomTool]":
    from cursor_sdk import CustomTool

    def bound(name: str) -> "Callable[[Mapping[str, Any], CustomToolContext], Any]":
        return lambda arguments, _: held.call(name, dict(arguments))

    assert turn.offered is not None
    return {
        tool.name: CustomTool(bound(tool.name), tool.description, tool.input_schema)
        for tool in definitions(turn.offered.runner.tools)
    }


def _send_options(turn: Turn, *, force: bool) -> "SendOptions":
    """`force` puts a run that is still under way aside."""
    from cursor_sdk import LocalSendOptions, SendOptions

    return SendOptions(
        model=selection(turn.model),
        mode=mode_of(turn.mode),
        local=LocalSendOptions(force=True) if force else None,
        on_delta=lambda _: None,  # that there is one is what makes the bridge send deltas
    )
