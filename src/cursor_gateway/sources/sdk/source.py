"""Run turns in agents of Cursor's SDK, through the shared bridge."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway import errors
from cursor_gateway.errors import GatewayError
from cursor_gateway.model.agent_events import AgentEvent, RunFailed
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.sources.base import Model, Source, SourceState, ToolRunner, Turn
from cursor_gateway.sources.cursor.approvals import Approvals
from cursor_gateway.sources.cursor.ask_user import ASK_USER, UserTool
from cursor_gateway.sources.cursor.command import Sandbox
from cursor_gateway.sources.cursor.configuration import configuration_errors, empty_workspace
from cursor_gateway.sources.cursor.failures import output_too_large
from cursor_gateway.sources.cursor.hooks import HookServer
from cursor_gateway.sources.cursor.models import ModelCache, nearest
from cursor_gateway.sources.cursor.permissions import Policy
from cursor_gateway.sources.cursor.user_questions import UserQuestions
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.leftovers import NotedSession, note_session, noted_sessions
from cursor_gateway.sources.private_files import data_of
from cursor_gateway.sources.processes import end_commands
from cursor_gateway.sources.sdk import requests
from cursor_gateway.sources.sdk.bridge import (
    MODULE,
    VERSION,
    Bridge,
    BridgeOptions,
    Bridges,
    make_home,
    missing_sdk,
    project_folders,
    write_project_hook,
)
from cursor_gateway.sources.sdk.decoder import CALLERS_SERVER, SdkDecoder, plain, size_of
from cursor_gateway.sources.sdk.failures import error_of, failure_of, reported
from cursor_gateway.sources.sdk.requests import content_of

if TYPE_CHECKING:
    from cursor_sdk import AgentOptions, AsyncAgent, AsyncRun, CustomTool, RunStreamEvent, SendOptions


class Feed:
    """`end` must be awaited."""

    def __init__(self, agent: "AsyncAgent", prompt: str, options: "Callable[[bool], SendOptions]") -> None:
        """`options` is called with whether to replace a run that is still active."""
        self.run: AsyncRun | None = None  # set with the bridge's first answer
        self.error: Exception | None = None  # what ended it
        self.is_over = self.is_interrupted = False
        self._agent, self._prompt, self._options = agent, prompt, options
        self._events: list[RunStreamEvent] = []
        self._change = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._read(), name=f"feed of {agent.agent_id}")

    async def next(self) -> "list[RunStreamEvent]":
        """Waits for events and returns all since the last call; empty at the end, and where there are none when
        `is_interrupted` is set."""
        while not self._events and not self.is_over and not self.is_interrupted:
            self._change.clear()
            await self._change.wait()
        events, self._events = self._events, []
        return events

    def interrupt(self) -> None:
        """Lets `next` return, until `is_interrupted` is reset."""
        self.is_interrupted = True
        self._change.set()

    async def end(self, seconds: float) -> None:
        """Waits that long for the end of the stream."""
        try:
            await asyncio.wait([self._task], timeout=seconds)
        finally:
            self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        try:
            self.run = await self._send()
            async for event in self.run.events():
                self._events.append(event)
                self._change.set()
        except Exception as error:  # noqa: BLE001 -- reported by `error`
            self.error = error
        finally:
            self.is_over = True
            self._change.set()

    async def _send(self) -> "AsyncRun":
        try:
            return await self._agent.send(self._prompt, self._options(False))
        except Exception as error:
            if not reported(error).is_busy:
                raise
            # The gateway allows one run at a time, so the active one was left over by a dead process.
            return await self._agent.send(self._prompt, self._options(True))


# --- Calls of the tools ----------------------------------------------------------------------------

_OVER = ToolResult(text="The run is over.", is_error=True)


class HeldCalls:
    """The calls of one run. The SDK does not report that a run was cancelled or its bridge died, so `end` must."""

    def __init__(self, runner: ToolRunner) -> None:
        self.runner = runner
        self._tasks: set[asyncio.Task[ToolResult]] = set()
        self._is_over = False

    async def call(self, name: str, arguments: Mapping[str, Any], context: object = None) -> dict[str, Any]:
        """Never raises: the bridge would pass nothing useful about an exception. `context` is the SDK's."""
        if self._is_over:
            return content_of(_OVER)
        waiting = self.runner.call(name, dict(arguments))
        task = asyncio.get_running_loop().create_task(waiting, name=f"tool {name}")
        self._tasks.add(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self._tasks.discard(task)
        return content_of(_OVER if task.cancelled() else _result_of(task))

    def end(self) -> None:
        self._is_over = True
        for task in tuple(self._tasks):
            task.cancel()


def _result_of(task: "asyncio.Task[ToolResult]") -> ToolResult:
    match task.exception():
        case None:
            return task.result()
        case GatewayError() as error:
            return ToolResult(text=str(error), is_error=True)
        case error:  # the agent waits for an answer in any case
            return ToolResult(text=f"The tool failed: {type(error).__name__}.", is_error=True)


# --- one run --------------------------------------------------------------------------------------
# Its events are read as they arrive, even when no caller is waiting: the bridge drops a stream that is not read.


_MOST_LOST = 10_000
_LOOK_SECONDS = 0.02  # between looks for a run that is about to begin


class SdkOptions(Struct, frozen=True, kw_only=True):
    folder: Path  # for the runtime's home
    bridge: BridgeOptions = BridgeOptions()
    force: bool = False  # allow commands, web access and subagents
    permissions: Literal["deny", "ask"] = "deny"  # for what no rule allows
    allow: Sequence[str] = ()  # the operator's rules
    sandbox: Sandbox = "agent"
    loads_settings: bool = True  # rules, MCP servers and hooks of the workspace and the user, as the CLI does
    models_seconds: float = 600.0
    max_output_bytes: int = 256 * 1024 * 1024  # per turn
    cancel_seconds: float = 5.0  # for each call to the bridge when a run ends


def unavailable(environ: Mapping[str, str]) -> errors.GatewayError | None:
    """Why this source cannot be used here; None if it can."""
    if find_spec(MODULE) is None:
        return missing_sdk()
    if not environ.get("CURSOR_API_KEY"):
        return errors.AgentUnauthenticated(
            "Cursor's SDK needs an API key; set CURSOR_API_KEY (cursor.com/dashboard, Integrations)."
        )
    return None


class CursorSdkSource(Source):
    holds_questions = True
    asks_by_default = False
    offers_tools = True
    tools_server = CALLERS_SERVER

    def __init__(
        self, options: SdkOptions, environ: Mapping[str, str], ledger: Ledger, clock: Callable[[], float]
    ) -> None:
        self._options, self._environ = options, environ
        self._bridges = Bridges(options.bridge, environ, ledger, self._prepare)
        self._hooks = HookServer()
        self._models = ModelCache(self._list_models, options.models_seconds, clock)
        self._lost: dict[str, None] = {}  # sessions, latest last
        self._cleanups: dict[str, asyncio.Task[None]] = {}  # by session: of its last turn
        self._background: set[asyncio.Task[None]] = set()
        self._turns: set[Feed] = set()  # that are running

    async def _prepare(self) -> Mapping[str, str]:
        """Before a bridge starts: the socket for its hook, and the home folder with the hook."""
        options = self._options
        with configuration_errors():
            await self._hooks.start()
            make = partial(make_home, options.folder, self._hooks.socket, self._environ)
            return await asyncio.to_thread(make, loads_settings=options.loads_settings)

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
                with suppress(errors.SessionLost):  # already gone
                    options = {"cwd": session.workspace, "apiKey": self._key()}
                    await self._call(bridge, bridge.client.agents.delete(session.id, options))
        except errors.GatewayError:
            return False
        for session in sessions:
            if session.workspace.startswith(f"{folder}/"):  # of this conversation alone: what was deleted is erased
                for project in project_folders(self._options.folder, self._environ, session.workspace):
                    await asyncio.to_thread(shutil.rmtree, project, ignore_errors=True)
        return True

    def warm_up(self, workspace: str) -> None:
        """Starts the bridge. If that fails, the next request reports it."""
        if unavailable(self._environ) is None:
            self._bridges.start()

    async def close(self) -> None:
        try:
            await self._models.close()
            while ends := [*self._cleanups.values(), *self._background]:
                await asyncio.wait(ends)
            await self._bridges.close()
        finally:
            await self._hooks.close()

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        key = self._key()
        if turn.session_id is not None and (last := self._cleanups.get(turn.session_id)) is not None:
            await asyncio.wait([last])
        is_warm = self._bridges.current is not None
        questions = _questions(turn)
        runner = turn.offered.runner if turn.offered is not None else questions.tool if questions is not None else None
        held = HeldCalls(runner) if runner is not None else None
        opened = await self._opened(turn, held, key)
        if isinstance(opened, errors.Failure):
            yield [RunFailed(failure=opened)]
            return
        clock, agent = asyncio.get_running_loop().time, opened.agent
        model = agent.model.id if agent.model is not None else turn.model
        user_tool = "" if questions is None else questions.tool.name
        decoder = SdkDecoder(
            agent.agent_id,
            model,
            turn.prompt,
            offers_tools=turn.offered is not None,
            user_tool=user_tool,
            is_warm=is_warm,
        )
        approvals = self._approvals(turn, opened.folder, user_tool)
        self._hooks.add(agent.agent_id, approvals)
        feed = Feed(agent, turn.prompt, lambda force: _send_options(turn, force=force))
        approvals.notify = feed.interrupt
        if questions is not None:
            questions.notify = feed.interrupt
        self._turns.add(feed)
        size, most = 0, self._options.max_output_bytes
        try:
            while not decoder.finished and ((events := await feed.next()) or feed.is_interrupted):
                for event in events:
                    update = plain(event)
                    size += size_of(update)
                    if size > most:
                        raise output_too_large(most)
                    decoder.push(event.kind, update, clock() * 1000)
                feed.is_interrupted = False
                batch = approvals.passed(decoder.take())
                if questions is not None:
                    questions.reported(decoder.user_calls)
                    batch = questions.among(batch, is_over=decoder.finished)
                if batch:
                    yield batch
            if not decoder.finished:
                error = None if feed.error is None else await self._failure(opened.bridge, feed.error, turn.model)
                yield approvals.passed(decoder.flush(error))
        finally:
            leaving = self._run_in_background(self._clean_up(opened, feed, held, is_over=decoder.finished))
            self._cleanups[agent.agent_id] = leaving
            leaving.add_done_callback(lambda _: self._cleanups.pop(agent.agent_id))
            if questions is not None:
                leaving.add_done_callback(lambda _: questions.close())
            await asyncio.shield(leaving)  # the cleanup continues even if this is cancelled

    # --- opening and closing an agent -----------------------------------------------------------------

    async def _opened(self, turn: Turn, held: HeldCalls | None, key: str) -> "_Opened | errors.Failure":
        """If this is cancelled, the agent is opened all the same, and then closed."""
        opening = asyncio.get_running_loop().create_task(self._open(turn, held, key), name=f"opening {turn.run_id}")
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._run_in_background(self._abandon(opening))
            raise

    async def _open(self, turn: Turn, held: HeldCalls | None, key: str) -> "_Opened | errors.Failure":
        """A new agent, or the one that the turn resumes. Raises a `GatewayError` if there is no bridge.

        A bridge that died while idle may only be noticed here, so there is one retry.
        """
        for is_last in (False, True):
            bridge = await self._bridges.get()
            folder = self._workspace(turn)
            options = _agent_options(turn, folder, held, key, self._options)
            try:
                if turn.session_id is None:
                    opened = _Opened(bridge, await bridge.client.create_agent(options), folder)
                else:
                    opened = _Opened(bridge, await bridge.client.resume_agent(turn.session_id, options), folder)
            except Exception as error:  # noqa: BLE001 -- the SDK's errors, or any other that it lets through
                report, failure = reported(error), await self._failure(bridge, error, turn.model)
                if bridge.is_gone and report.is_transport and not report.is_slow and not is_last:
                    continue
                if failure.code == errors.SessionLost.code and turn.session_id is not None:
                    self._forget(turn.session_id)
                return failure
            # The SDK keeps its agents in its own store, outside the conversation's folder.
            noted = NotedSession("sdk", opened.agent.agent_id, folder)
            note_session(Path(turn.folder), data_of(turn.folder), noted)
            bridge.add_run(opened.agent.agent_id, offers_tools=held is not None)
            return opened
        raise AssertionError("the last attempt returns")

    def _workspace(self, turn: Turn) -> str:
        """The agent's working folder. With the caller's tools it is empty, except for the gateway's hook."""
        if turn.offered is None:
            return turn.workspace
        folder = empty_workspace(turn)
        with configuration_errors():
            write_project_hook(Path(folder), data_of(turn.folder), self._hooks.socket)
        return folder

    def _approvals(self, turn: Turn, folder: str, user_tool: str) -> Approvals:
        policy = Policy(
            force=self._options.force,
            mode=turn.mode,
            is_confined=turn.offered is not None,
            rules=[*self._options.allow, *turn.allow],
            user_tool=user_tool,
            data=os.path.realpath(data_of(turn.folder)),
        )
        person = turn.approver if self._options.permissions == "ask" else None
        return Approvals(policy, os.path.realpath(folder), person)

    async def _abandon(self, opening: "asyncio.Task[_Opened | errors.Failure]") -> None:
        """Closes an agent whose turn was cancelled while it opened."""
        await asyncio.wait([opening])
        if opening.cancelled() or opening.exception() is not None:
            return
        if not isinstance(opened := opening.result(), errors.Failure):
            await self._bounded(opened, opened.agent.close())
            self._bridges.release(opened.bridge)

    async def _clean_up(self, opened: "_Opened", feed: Feed, held: HeldCalls | None, *, is_over: bool) -> None:
        """Ends the run and the agent: to stop reading the stream does not cancel the run."""
        try:
            if not is_over:
                await self._bounded(opened, self._cancel(opened, feed))
        finally:  # not earlier: the agent would continue without the results, or without what it asked for
            self._hooks.remove(opened.agent.agent_id)
            if held is not None:
                held.end()
        await feed.end(self._options.cancel_seconds)
        self._turns.discard(feed)
        try:
            await end_commands(
                opened.bridge.pid,
                opened.agent.agent_id,
                is_alone=lambda: not self._turns,
                seconds=self._options.bridge.grace_seconds,
            )
        finally:
            await self._bounded(opened, opened.agent.close())
            self._bridges.release(opened.bridge)

    async def _cancel(self, opened: "_Opened", feed: Feed) -> None:
        client, agent_id = opened.bridge.client, opened.agent.agent_id
        while not feed.is_over:
            if feed.run is not None and feed.run.id:
                await client.cancel_run(feed.run.id, agent_id=agent_id)
                return
            # The run's id is not known yet; perhaps the bridge has not begun it either.
            runs = (await client.list_runs(agent_id, runtime="local", cwd=opened.folder)).items
            if running := [run for run in runs if run.status == "running"]:
                for run in running:
                    await client.cancel_run(run.id, agent_id=agent_id)
                return
            await asyncio.sleep(_LOOK_SECONDS)

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

    async def _failure(self, bridge: Bridge, error: Exception, model: str) -> errors.Failure:
        report = reported(error)
        failure = failure_of(report)
        found = await self._of_the_bridge(bridge, error)
        if found is not None and (not report.is_transport or isinstance(found, errors.AgentOutOfMemory)):
            return found.failure()
        if found is not None and bridge.stderr_tail:
            return replace(failure, details=errors.readable_details(f"{failure.details}\n{bridge.stderr_tail}"))
        if report.sdk_code == "invalid_model":
            unknown = errors.unknown_model(model, nearest(model, self._models.peek() or []))
            unknown.details = failure.details
            return unknown.failure()
        return failure

    async def _of_the_bridge(self, bridge: Bridge, error: Exception) -> errors.GatewayError | None:
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


def _agent_options(turn: Turn, folder: str, held: HeldCalls | None, key: str, options: SdkOptions) -> "AgentOptions":
    from cursor_sdk import AgentOptions, LocalAgentOptions, SandboxOptions

    sandbox = None if options.sandbox == "agent" else SandboxOptions(enabled=options.sandbox == "enabled")
    tools = _custom_tools(held) if held is not None else {}
    return AgentOptions(
        model=requests.selection(turn.model),
        api_key=key,
        local=LocalAgentOptions(
            cwd=folder,
            custom_tools=tools or None,
            sandbox_options=sandbox,
            setting_sources=requests.setting_sources(turn, loads_settings=options.loads_settings),
        ),
        tools=requests.allowed_tools(turn),
        disallowed_tools=requests.denied_tools(
            [*options.allow, *turn.allow], force=options.force, asks=options.permissions == "ask"
        ),
    )


def _questions(turn: Turn) -> UserQuestions | None:
    """With a tool whose name nobody can guess: the hook that allows it does not learn which server it belongs to."""
    if turn.person is None or turn.offered is not None:
        return None
    return UserQuestions(UserTool(CALLERS_SERVER, f"{ASK_USER.name}_{token_hex(6)}"), turn.person)


def _custom_tools(held: HeldCalls) -> "dict[str, CustomTool]":
    from cursor_sdk import CustomTool

    return {
        tool.name: CustomTool(partial(held.call, tool.name), tool.description, tool.parameters)
        for tool in requests.definitions(held.runner.tools)
    }


def _send_options(turn: Turn, *, force: bool) -> "SendOptions":
    """`force` replaces a run that is still active."""
    from cursor_sdk import LocalSendOptions, SendOptions

    return SendOptions(
        model=requests.selection(turn.model),
        mode=requests.mode_of(turn.mode),
        local=LocalSendOptions(force=True) if force else None,
        on_delta=lambda _: None,  # the bridge sends deltas only if there is a callback
    )
