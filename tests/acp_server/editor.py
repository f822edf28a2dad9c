"""An editor for tests: the official ACP client, with `cursor-gateway acp` as its agent, usable from blocking code.

Every message of the agent is checked against the official library's models. These forgive much, so that what they read
must also be the same again when it is written.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acp import RequestError, schema, spawn_agent_process, text_block
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import BaseModel, TypeAdapter

from tests.preloaded import command

Update = dict[str, Any]
Asked = dict[str, Any]  # the parameters of a request to the editor
Answer = dict[str, Any]
Decide = Callable[[Asked], Answer]

_CHECKED: dict[str, Any] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
    "elicitation/create": schema.CreateElicitationRequest,
    "$/cancel_request": schema.CancelRequestNotification,
}
_RESULTS: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/close": schema.CloseSessionResponse,
    "session/delete": schema.DeleteSessionResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
}


def checked(value: object, model: Any) -> None:
    """That the value is one of the model's, to the last field."""
    adapter: TypeAdapter[Any] = TypeAdapter(model)
    read = adapter.validate_python(value)
    assert adapter.dump_python(read, mode="json", by_alias=True, exclude_unset=True) == value


def allow(option_id: str) -> Decide:
    """Chooses this option of every permission."""
    return lambda asked: {"outcome": {"outcome": "selected", "optionId": option_id}}


class Editor:
    def __init__(self, portal: BlockingPortal) -> None:
        self.portal = portal
        self.connection: ClientSideConnection | Any = None
        self.pid = 0
        self.updates: list[tuple[str, Update]] = []  # with their sessions
        self.asked: list[tuple[str, Asked]] = []  # with their methods
        self.decide: Decide = allow("once")
        self.errors: list[BaseException] = []
        self._methods: dict[Any, str] = {}  # of open requests
        self.initialized: dict[str, Any] = {}

    # --- what the library calls -----------------------------------------------------------------------

    def on_connect(self, connection: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        pass  # `observe` has it as it was sent

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **more: Any) -> Any:
        asked = {"toolCall": _plain(tool_call), "options": [_plain(option) for option in options]}
        answer = await asyncio.to_thread(self.decide, asked)
        return schema.RequestPermissionResponse.model_validate(answer)

    async def create_elicitation(self, message: str, mode: Any, **more: Any) -> Any:
        answer = await asyncio.to_thread(self.decide, {"message": message, **_plain(mode)})
        return TypeAdapter(schema.CreateElicitationResponse).validate_python(answer)

    def observe(self, event: StreamEvent) -> None:
        try:
            self._observe(event.message, event.direction is StreamDirection.INCOMING)
        except BaseException as error:
            self.errors.append(error)
            raise

    def _observe(self, message: dict[str, Any], is_incoming: bool) -> None:
        method, params, id = message.get("method"), message.get("params"), message.get("id")
        if not is_incoming:
            if method is not None and id is not None:
                self._methods[id] = method
            return
        assert message["jsonrpc"] == "2.0"
        if method is None:
            asked = self._methods.pop(id)
            if "result" in message:
                checked(message["result"], _RESULTS[asked])
            return
        checked(params, _CHECKED[method])
        assert isinstance(params, dict)
        if method == "session/update":
            self.updates.append((params["sessionId"], params["update"]))
        else:
            self.asked.append((method, params))

    # --- what tests call ------------------------------------------------------------------------------

    def request(self, method: str, **params: Any) -> Any:
        """Raises `RequestError`."""
        return self.start(method, **params).result(timeout=300)

    def start(self, method: str, **params: Any) -> "Future[Any]":
        return self.portal.start_task_soon(self.connection._conn.send_request, method, params)

    def notify(self, method: str, **params: Any) -> None:
        self.portal.call(self.connection._conn.send_notification, method, params)

    def new(self, folder: Path, **more: Any) -> str:
        id: str = self.request("session/new", cwd=str(folder), mcpServers=[], **more)["sessionId"]
        return id

    def prompt(self, session: str, text: str, *blocks: Any) -> dict[str, Any]:
        return dict(self.prompting(session, text, *blocks).result(timeout=300))

    def prompting(self, session: str, text: str, *blocks: Any) -> "Future[Any]":
        said = [_plain(text_block(text)), *blocks] if text else list(blocks)
        return self.start("session/prompt", sessionId=session, prompt=said)

    def cancel(self, session: str) -> None:
        self.notify("session/cancel", sessionId=session)

    def withdraw(self, method: str) -> None:
        """Cancels the open requests of this method."""
        for id in [id for id, asked in self._methods.items() if asked == method]:
            self.notify("$/cancel_request", requestId=id)

    def of(self, session: str, kind: str | None = None) -> list[Update]:
        """The updates of a session."""
        return [update for id, update in self.updates if id == session and kind in (None, update["sessionUpdate"])]

    def text(self, session: str, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.of(session, kind))

    def calls(self, session: str) -> dict[str, dict[str, Any]]:
        """The tool calls of a session as an editor shows them."""
        return folded(self.of(session))


def folded(updates: list[Update]) -> dict[str, dict[str, Any]]:
    calls: dict[str, dict[str, Any]] = {}
    for update in updates:
        fields = {name: value for name, value in update.items() if name != "sessionUpdate"}
        if update["sessionUpdate"] == "tool_call":
            assert fields["toolCallId"] not in calls
            calls[fields["toolCallId"]] = fields
        elif update["sessionUpdate"] == "tool_call_update":
            calls[fields["toolCallId"]].update(fields)
    return calls


def _plain(model: BaseModel) -> dict[str, Any]:
    return dict(model.model_dump(mode="json", by_alias=True, exclude_unset=True))


@contextmanager
def acp_editor(folder: Path, environment: Mapping[str, str], *flags: str, forms: bool = True) -> Iterator[Editor]:
    program, *words = command(environment)
    capabilities: dict[str, Any] = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    if forms:
        capabilities["elicitation"] = {"form": {}}
    with start_blocking_portal() as portal:
        editor = Editor(portal)
        spawned = spawn_agent_process(
            editor,  # type: ignore[arg-type]  # the methods for files and terminals are optional
            program,
            *words,
            "acp",
            *flags,
            env=dict(environment),
            cwd=folder,
            use_unstable_protocol=True,
            observers=[editor.observe],
            transport_kwargs={"stderr": None, "shutdown_timeout": 60, "limit": 2**26},
        )
        with portal.wrap_async_context_manager(spawned) as (connection, process):
            editor.connection, editor.pid = connection, process.pid
            editor.initialized = editor.request("initialize", protocolVersion=1, clientCapabilities=capabilities)
            yield editor
        assert not editor.errors, editor.errors


__all__ = ["Editor", "RequestError", "acp_editor", "allow", "checked", "folded"]
