"""Run turns in agents of Cursor's SDK, through the shared bridge."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import (
    AgentUnauthenticated,
    Failure,
    GatewayError,
    SessionLost,
    readable_details,
    unknown_model,
)
from cursor_gateway.model.agent_events import AgentEvent, RunFailed
from cursor_gateway.sources.base import Model, Source, SourceState, Turn
from cursor_gateway.sources.cursor.confinement import empty_workspace
from cursor_gateway.sources.cursor.failures import output_too_large
from cursor_gateway.sources.cursor.models import ModelCache, nearest
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
    from cursor_sdk import AgentOptions, CustomTool, SendOptions

_MOST_LOST = 10_000


class SdkOptions(Struct, frozen=True, kw_only=True):
    bridge: BridgeOptions = BridgeOptions()
    force: bool = False  # allow commands, web access and subagents
    models_seconds: float = 600.0
    max_output_bytes: int = 256 * 1024 * 1024  # per turn
    cancel_seconds: float = 5.0  # for each call to the bridge when a run ends


def unavailable(environ: Mapping[str, str]) -> GatewayError | None:
    """Why this source cannot be used here; None if it can."""
    if find_spec(MODULE) is None:
        return missing_sdk()
    if not environ.get("CURSOR_API_KEY"):
        return AgentUnauthenticated(
            "Cursor's SDK needs an API key; set CURSOR_API_KEY (cursor.com/dashboard, Integrations)."
        )
    return None


class CursorSdkSource(Source):
    holds_questions = False  # the bridge's protocol has no way to answer
    offers_tools = True
    tools_server = CALLERS_SERVER

    def __init__(
        self, options: SdkOptions, environ: Mapping[str, str], ledger: Ledger, clock: Callable[[], float]
    ) -> None:
        self._options, self._environ = options, environ
        self._bridges = Bridges(options.bridge, environ, ledger)
        self._models = ModelCache(self._list_models, options.models_seconds, clock)
        self._lost: dict[str, None] = {}  # sessions, latest last
        self._cleanups: dict[str, asyncio.Task[None]] = {}  # by session: of its last turn
        self._background: set[asyncio.Task[None]] = set()

    async def probe(self) -> str:
        """The bridge's version; starts it. Raises a `GatewayError`."""
        self._key()
        bridge = await self._bridges.get()
        version = await self._call(bridge, bridge.client.get_version())
        return str(version.get("bridgeVersion", ""))

    def state(self) -> SourceState:
        bridge = self._bridges.current
        running = "its bridge is not started yet" if bridge is None else f"its bridge runs as process {bridge.pid}"
        return SourceState(name="sdk", detail=f"cursor-sdk {VERSION}, {running}")

    async def models(self) -> list[Model]:
        return await self._models.get()

    def has_session(self, turn: Turn) -> bool:
        """Only resuming a session shows whether the bridge still has it; lost ones are remembered."""
        return turn.session_id not in self._lost

    def account(self) -> str | None:
        return self._environ.get("CURSOR_API_KEY")

    def check_model(self, model: str) -> None:
        self._models.check(model)

    async def forget(self, folder: str) -> bool:
        """Sessions are in the SDK's own store, from which only the SDK can delete."""
        sessions = noted_sessions(Path(folder), "sdk")
        if not sessions:
            return True
        if leaving := [self._cleanups[one.id] for one in sessions if one.id in self._cleanups]:
            await asyncio.wait(leaving)
        try:
            bridge = await self._bridges.get()
            for session in sessions:
                with suppress(SessionLost):  # already gone
                    options = {"cwd": session.workspace, "apiKey": self._key()}
                    await self._call(bridge, bridge.client.agents.delete(session.id, options))
        except GatewayError:
            return False
        return True

    async def close(self) -> None:
        await self._models.close()
        while ends := [*self._cleanups.values(), *self._background]:
            await asyncio.wait(ends)
        await self._bridges.close()

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        key = self._key()
        if turn.session_id is not None and (last := self._cleanups.get(turn.session_id)) is not None:
            await asyncio.wait([last])
        held = HeldCalls(turn.offered.runner) if turn.offered is not None else None
        opened = await self._opened(turn, held, key)
        if isinstance(opened, Failure):
            yield [RunFailed(failure=opened)]
            return
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
                        raise output_too_large(most)
                    decoder.push(event.kind, update, clock() * 1000)
                if batch := decoder.take():
                    yield batch
            if not decoder.finished:
                yield decoder.flush(
                    None if feed.error is None else await self._failure(opened.bridge, feed.error, turn.model)
                )
        finally:
            leaving = self._run_in_background(self._clean_up(opened, feed, held, is_over=decoder.finished))
            self._cleanups[agent.agent_id] = leaving
            leaving.add_done_callback(lambda _: self._cleanups.pop(agent.agent_id))
            await asyncio.shield(leaving)  # the cleanup continues even if this is cancelled

    # --- opening and closing an agent -----------------------------------------------------------------

    async def _opened(self, turn: Turn, held: HeldCalls | None, key: str) -> "_Opened | Failure":
        """If this is cancelled, the agent is opened all the same, and then closed."""
        opening = asyncio.get_running_loop().create_task(self._open(turn, held, key), name=f"opening {turn.run_id}")
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._run_in_background(self._abandon(opening))
            raise

    async def _open(self, turn: Turn, held: HeldCalls | None, key: str) -> "_Opened | Failure":
        """A new agent, or the one that the turn resumes. Raises a `GatewayError` if there is no bridge.

        A bridge that died while idle may only be noticed here, so there is one retry.
        """
        for is_last in (False, True):
            bridge = await self._bridges.get()
            folder = turn.workspace if turn.offered is None else empty_workspace(turn)  # as in the CLI's source
            options = _agent_options(turn, folder, held, key, force=self._options.force)
            try:
                if turn.session_id is None:
                    opened = _Opened(bridge, await bridge.client.create_agent(options), folder)
                else:
                    opened = _Opened(bridge, await bridge.client.resume_agent(turn.session_id, options), folder)
            except Exception as error:  # noqa: BLE001 -- the SDK's errors, or any other that it lets through
                report, failure = reported(error), await self._failure(bridge, error, turn.model)
                if bridge.is_gone and report.is_transport and not report.is_slow and not is_last:
                    continue
                if failure.code == SessionLost.code and turn.session_id is not None:
                    self._forget(turn.session_id)
                return failure
            # The SDK keeps its agents in its own store, outside the conversation's folder.
            noted = NotedSession("sdk", opened.agent.agent_id, folder)
            note_session(Path(turn.folder), data_of(turn.folder), noted)
            return opened
        raise AssertionError("the last attempt returns")

    async def _abandon(self, opening: "asyncio.Task[_Opened | Failure]") -> None:
        """Closes an agent whose turn was cancelled while it opened."""
        await asyncio.wait([opening])
        if opening.cancelled() or opening.exception() is not None:
            return
        if not isinstance(opened := opening.result(), Failure):
            await self._bounded(opened, opened.agent.close())

    async def _clean_up(self, opened: "_Opened", feed: Feed, held: HeldCalls | None, *, is_over: bool) -> None:
        """Ends the run and the agent: to stop reading the stream does not cancel the run."""
        try:
            if not is_over:
                await self._bounded(opened, self._cancel(opened, feed))
        finally:
            if held is not None:  # not earlier: the agent would continue without the results
                held.end()
        await feed.end(self._options.cancel_seconds)
        await self._bounded(opened, opened.agent.close())

    async def _cancel(self, opened: "_Opened", feed: Feed) -> None:
        client, agent_id = opened.bridge.client, opened.agent.agent_id
        if feed.is_over:
            return
        if feed.run is not None and feed.run.id:
            await client.cancel_run(feed.run.id, agent_id=agent_id)
            return
        # The run's id is not known yet.
        for run in (await client.list_runs(agent_id, runtime="local", cwd=opened.folder)).items:
            if run.status == "running":
                await client.cancel_run(run.id, agent_id=agent_id)

    async def _bounded(self, opened: "_Opened", call: Coroutine[Any, Any, None]) -> None:
        """Calls the bridge with a timeout and ignores the answer; a bridge that does not answer is replaced."""
        if opened.bridge.is_gone:
            call.close()
            return
        try:
            async with asyncio.timeout(self._options.cancel_seconds):
                await call
        except TimeoutError:
            await self._bridges.replace_broken(opened.bridge)
        except Exception as error:  # noqa: BLE001 -- e.g. the run has just ended, or the agent is gone
            if reported(error).is_transport:
                await self._bridges.replace_broken(opened.bridge)

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _forget(self, session_id: str) -> None:
        self._lost[session_id] = None
        if len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]

    # --- failures -------------------------------------------------------------------------------------

    async def _failure(self, bridge: Bridge, error: Exception, model: str) -> Failure:
        report = reported(error)
        failure = failure_of(report)
        if (found := await self._of_the_bridge(bridge, error)) is not None and not report.is_transport:
            return found.failure()
        if found is not None and bridge.stderr_tail:
            return replace(failure, details=readable_details(f"{failure.details}\n{bridge.stderr_tail}"))
        if report.sdk_code == "invalid_model":
            unknown = unknown_model(model, nearest(model, self._models.peek() or []))
            unknown.details = failure.details
            return unknown.failure()
        return failure

    async def _of_the_bridge(self, bridge: Bridge, error: Exception) -> GatewayError | None:
        """The error if the bridge itself failed, and not just this call."""
        report = reported(error)
        if report.is_transport or report.may_be_the_bridge:
            return await self._bridges.replace_broken(bridge)
        return None

    async def _call(self, bridge: Bridge, call: Coroutine[Any, Any, Any]) -> Any:
        """Raises a `GatewayError`."""
        try:
            return await call
        except Exception as error:
            found = await self._of_the_bridge(bridge, error)
            raise (found or error_of(reported(error))) from error

    async def _list_models(self) -> list[Model]:
        key = self._key()
        bridge = await self._bridges.get()
        models = await self._call(bridge, bridge.client.list_models(api_key=key))
        return [Model(model.id, model.display_name or model.id) for model in models]

    def _key(self) -> str:
        if (missing := unavailable(self._environ)) is not None:
            raise missing
        return self._environ["CURSOR_API_KEY"]


class _Opened(Struct, frozen=True):
    bridge: Bridge
    agent: Any  # an AsyncAgent
    folder: str  # its working folder


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

    assert turn.offered is not None
    return {
        tool.name: CustomTool(partial(held.call, tool.name), tool.description, tool.parameters)
        for tool in definitions(turn.offered.runner.tools)
    }


def _send_options(turn: Turn, *, force: bool) -> "SendOptions":
    """`force` replaces a run that is still active."""
    from cursor_sdk import LocalSendOptions, SendOptions

    return SendOptions(
        model=selection(turn.model),
        mode=mode_of(turn.mode),
        local=LocalSendOptions(force=True) if force else None,
        on_delta=lambda _: None,  # the bridge sends deltas only if there is a callback
    )
