"""A stand-in for the SDK's bridge: calls of its protocol in; agents that play the stand-in's scenarios out.

    python -m tests.agent.bridge        says on stderr where it listens, as the real one does

Connect's JSON over HTTP/1.1, from the protocol as it is published; the standard library alone. Prompts choose what
happens, as they do for the stand-in of cursor-agent (see tests.agent), and the scenarios are the same code. Not for
this wire: echo-args' argv, bad-utf8 and no-newline (frames are whole), ignore-term. What the CLI fails with on stderr
before it begins is an error at the end of the stream here, after that a run whose result says that it failed; a crash
of the CLI is a crash of the bridge. Only here:

    sdk-error       error="code SDK_CODE retry_after message…" early=1: at the end of the stream, after text or at once
    sdk-result      code= status=ERROR|CANCELLED|EXPIRED message=: what the run's result says
    mute            nothing at all, not even the run's name

Knobs, read for each call (see knobs.py: `models`, `log`, `slow_start_seconds`), and:

    keep_alive_seconds      15, of silence in a run's stream
    create_error resume_error models_error send_error version_error    as sdk-error's
    create_seconds          how long that takes
    wedged                  what is asked gets no answer at all
    token                   another than the one that it has told
    token_in_line           the ready line holds the token itself
    not_ready               it never says that it is; 2: and ends
"""

import json
import os
import re
import secrets
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agent.bridge_emitter import BridgeEmitter
from tests.agent.bridge_errors import BridgeError, error_of, parsed
from tests.agent.bridge_tools import Callback, play_program
from tests.agent.config import Permissions, Toolset
from tests.agent.emitter import Record
from tests.agent.failures import Failure
from tests.agent.knobs import Knobs
from tests.agent.scenarios import scenario_of
from tests.agent.sessions import Chat, Sessions, new_id
from tests.agent.turn import SCENARIOS, Turn, hang

SERVICES = ("sdk.v1.SdkAgentService", "sdk.v1.SdkCursorService", "sdk.v1.SdkBridgeControlService")
STREAMS = ("Send", "ObserveRun")
TOOLS = frozenset(
    {
        "shell",
        "read",
        "edit",
        "grep",
        "glob",
        "ls",
        "task",
        "mcp",
        "webSearch",
        "delete",
        "readLints",
        "webFetch",
        "semSearch",
        "updateTodos",
        "readTodos",
        "askQuestion",
        "await",
        "generateImage",
        "applyAgentDiff",
        "createPlan",
    }
)
_SENT_SECONDS = 1.0


class Cancelled(BaseException):
    """The run is over, whatever its scenario still wants to say."""


class Run:
    """A run's messages, kept for whoever observes it."""

    def __init__(self, id: str, agent: "Agent", *, deltas: bool) -> None:
        self.id, self.agent, self.deltas = id, agent, deltas
        self.messages: list[Record] = []
        self.error: BridgeError | None = None
        self.is_over = False
        self.sent = 0
        self.is_read = True
        self.changed = threading.Condition()
        self.emitter: BridgeEmitter | None = None
        self.turn: BridgeTurn | None = None

    def put(self, message: Record) -> None:
        """Returns when it has been sent: a crash that follows takes nothing with it."""
        with self.changed:
            if self.is_over:
                raise Cancelled
            if "interactionUpdate" in message and not self.deltas:
                return
            self.messages.append({**message, "offset": str(len(self.messages))})
            self.is_over = "done" in message
            self.changed.notify_all()
            wanted = len(self.messages)
            self.changed.wait_for(lambda: self.sent >= wanted or not self.is_read, _SENT_SECONDS)

    def end(self, error: BridgeError | None = None) -> None:
        with self.changed:
            self.error, self.is_over = error, True
            self.changed.notify_all()

    def stop(self, status: str) -> None:
        """Whatever its scenario does meanwhile."""
        with self.changed:
            if self.is_over:
                raise BridgeError("failed_precondition", "The run has ended.", "RUN_NOT_CANCELLABLE")
            emitter = BridgeEmitter(self._keep, print, self.agent.chat.id, self.id, self.agent.model)
            emitter.said = self.emitter.said if self.emitter is not None else ""
            if self.turn is not None:
                self.turn.save()
                self.turn.is_stopped = True
            emitter.status(status)
            emitter.end(status)
            self.is_over = True
            self.changed.notify_all()

    def _keep(self, message: Record) -> None:
        self.messages.append({**message, "offset": str(len(self.messages))})

    @property
    def result(self) -> Any:
        for message in self.messages:
            if isinstance(reply := message.get("result"), dict):
                return reply["result"]
        return {"agentId": self.agent.chat.id, "runId": self.id, "status": "RUN_LIFECYCLE_STATUS_RUNNING"}


class BridgeTurn(Turn):
    """What a scenario does after its run was stopped is not kept: the next run may be under way."""

    is_stopped = False

    def begin(self) -> None:
        self._check()
        super().begin()

    def save(self) -> None:
        self._check()
        super().save()

    def _check(self) -> None:
        if self.is_stopped:
            raise Cancelled


class Agent:
    def __init__(self, chat: Chat, options: dict[str, Any], workspace: str, model: str) -> None:
        self.chat, self.options, self.workspace, self.model = chat, options, workspace, model
        self.run: Run | None = None


class Bridge:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.token = secrets.token_urlsafe(32)
        self.configuration = os.path.join(os.environ.get("HOME") or "/", ".cursor", "sdk-agent-store")
        self.callback: Callback | None = None
        self.agents: dict[str, Agent] = {}
        self.runs: dict[str, Run] = {}

    @property
    def knobs(self) -> Knobs:
        return Knobs.read(self.directory, os.environ)

    def log(self, method: str, request: Record) -> None:
        if file := self.knobs.text("log"):
            with open(file, "a", encoding="utf-8") as log:
                log.write(json.dumps({"method": method, "request": request, "pid": os.getpid()}) + "\n")

    # one call, one answer

    def unary(self, method: str, request: dict[str, Any]) -> Record:
        answer = getattr(self, "on" + re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", method), None)
        if answer is None:
            raise BridgeError("unimplemented", f"The stand-in does not know {method}.")
        result: Record = answer(request)
        return result

    def on_ping(self, request: dict[str, Any]) -> Record:
        return {"message": "pong"}

    def on_get_version(self, request: dict[str, Any]) -> Record:
        self._fail("version_error")
        return {"bridgeVersion": "1.0.0-standin", "protocolVersion": "1", "capabilities": []}

    def on_shutdown(self, request: dict[str, Any]) -> Record:
        threading.Timer(0.05, os._exit, (0,)).start()
        return {}

    def on_set_tool_callback(self, request: dict[str, Any]) -> Record:
        url = request.get("url", "")
        self.callback = Callback(url, request.get("authToken", "")) if url else None
        return {}

    def on_me(self, request: dict[str, Any]) -> Record:
        self._check_key(request)
        return {"user": {"apiKeyName": "standin", "userEmail": "user@example.com"}}

    def on_list_models(self, request: dict[str, Any]) -> Record:
        self._fail("models_error")
        self._check_key(request)
        return {"items": [{"id": id, "displayName": label} for id, label in self.knobs.models()]}

    def on_list_repositories(self, request: dict[str, Any]) -> Record:
        return {}

    def on_create_agent(self, request: dict[str, Any]) -> Record:
        options = request.get("options", {})
        time.sleep(self.knobs.number("create_seconds"))
        self._fail("create_error")
        self._check_key(request)
        return self._opened(self._sessions(options).create(options.get("agentId")), options)

    def on_resume_agent(self, request: dict[str, Any]) -> Record:
        options = request.get("options", {})
        self._fail("resume_error")
        self._check_key(request)
        return self._opened(self._known(request["agentId"], options), options)

    def on_close_agent(self, request: dict[str, Any]) -> Record:
        agent = self.agents.pop(request.get("agentId", ""), None)
        if agent is None:
            raise BridgeError("not_found", "There is no such agent.", "AGENT_NOT_FOUND")
        return {}

    def on_delete_agent(self, request: dict[str, Any]) -> Record:
        self._fail("delete_error")
        options = {"local": {"cwd": [request.get("options", {}).get("cwd", "")]}}
        chat = self._known(request["agentId"], options)
        self.agents.pop(chat.id, None)
        self.runs = {id: run for id, run in self.runs.items() if run.agent.chat.id != chat.id}
        shutil.rmtree(chat.directory)
        return {}

    def on_get_agent(self, request: dict[str, Any]) -> Record:
        chat = self._known(request["agentId"], {"local": {"cwd": [request.get("options", {}).get("cwd", "")]}})
        return {"agent": {"agentId": chat.id, "name": "New Agent", "summary": ""}}

    def on_list_agents(self, request: dict[str, Any]) -> Record:
        return {"items": [{"agentId": id, "name": "New Agent", "summary": ""} for id in self.agents]}

    def on_list_runs(self, request: dict[str, Any]) -> Record:
        return {"items": [run.result for run in self.runs.values() if run.agent.chat.id == request["agentId"]]}

    def on_get_run(self, request: dict[str, Any]) -> Record:
        return {"run": self._run(request).result}

    def on_wait_live_run(self, request: dict[str, Any]) -> Record:
        run = self._run(request)
        with run.changed:
            run.changed.wait_for(lambda: run.is_over)
        return {"result": run.result}

    def on_cancel_run(self, request: dict[str, Any]) -> Record:
        self._run(request).stop("CANCELLED")
        return {}

    def _run(self, request: dict[str, Any]) -> Run:
        try:
            return self.runs[request.get("runId", "")]
        except KeyError:
            raise BridgeError("invalid_argument", "There is no such run.") from None

    def _fail(self, knob: str) -> None:
        if error := self.knobs.text(knob):
            raise parsed(error)

    def _check_key(self, request: dict[str, Any]) -> None:
        key = request.get("options", {}).get("apiKey", "")
        if not key:
            raise BridgeError("unauthenticated", "An API key is needed.")
        if key.startswith("bad"):
            raise BridgeError("unauthenticated", "The API key is not known.", "UNAUTHORIZED")

    def _sessions(self, options: dict[str, Any]) -> Sessions:
        return Sessions(self.configuration, _cwd(options))

    def _known(self, id: str, options: dict[str, Any]) -> Chat:
        """Agents belong to the folder they began in."""
        sessions = self._sessions(options)
        if not os.path.exists(sessions._store(id)):
            raise BridgeError("not_found", f"Agent {id} not found", "AGENT_NOT_FOUND")
        return sessions.resume(id)

    def _opened(self, chat: Chat, options: dict[str, Any]) -> Record:
        model = self._model(options)
        for name in [*options.get("tools", {}).get("names", []), *options.get("disallowedTools", [])]:
            if name not in TOOLS:
                raise BridgeError("invalid_argument", f"Unknown tool {name!r}", "VALIDATION_ERROR")
        chat.save()
        before = self.agents.get(chat.id)
        self.agents[chat.id] = agent = Agent(chat, options, _cwd(options), model)
        agent.run = before.run if before is not None else None
        return {"agentId": chat.id, "model": {"id": model}}

    def _model(self, options: dict[str, Any]) -> str:
        wanted = options.get("model", {}).get("id", "")
        for id, _ in self.knobs.models():
            if id == wanted or id.startswith(f"{wanted}-"):
                return id
        raise BridgeError("invalid_argument", f"Cannot use this model: {wanted}", "INVALID_MODEL")

    # a run

    def send(self, request: dict[str, Any]) -> Run:
        self._fail("send_error")
        agent, options = self.agents.get(request.get("agentId", "")), request.get("options", {})
        if agent is None:
            raise BridgeError("not_found", "There is no such agent.", "AGENT_NOT_FOUND")
        if agent.run is not None and not agent.run.is_over:
            if not options.get("local", {}).get("force"):
                raise BridgeError("aborted", "The agent has a run already.", "AGENT_BUSY")
            agent.run.stop("EXPIRED")
        run = Run(f"run-{new_id()}", agent, deltas=options.get("enableDeltas", False))
        agent.run = self.runs[run.id] = run
        prompt = request.get("message", {}).get("text", "")
        threading.Thread(target=self._play, args=(run, prompt, options), daemon=True).start()
        return run

    def _play(self, run: Run, prompt: str, options: dict[str, Any]) -> None:
        agent = run.agent
        run.emitter = emitter = BridgeEmitter(run.put, _warn, agent.chat.id, run.id, agent.model)
        run.turn = turn = self._turn(run, prompt, options)
        begun = len(turn.history)
        status: int | None = None
        try:
            try:
                if turn.request.name == "program":
                    definitions = agent.options.get("local", {}).get("customTools", {})
                    status = play_program(turn, definitions, self.callback)
                else:
                    status = (_OWN.get(turn.request.name) or scenario_of(turn.request))(turn)
            finally:
                turn.save()
        except Cancelled:
            return
        except BridgeError as error:
            run.end(error)
            return
        except Failure as failure:
            self._failed(run, failure, has_begun=len(agent.chat.turns) > begun)
            return
        if status and not run.is_over:
            os._exit(status)
        if not run.is_over:
            emitter.end_text()
            run.end()

    def _failed(self, run: Run, failure: Failure, *, has_begun: bool) -> None:
        error = error_of(failure)
        if not has_begun:
            run.end(error)
            return
        assert run.emitter is not None
        try:
            run.emitter.status("ERROR", failure.message)
            run.emitter.end("ERROR", errorMessage=failure.message)
        except Cancelled:
            return

    def _turn(self, run: Run, prompt: str, options: dict[str, Any]) -> BridgeTurn:
        assert run.emitter is not None
        agent, knobs = run.agent, self.knobs
        models = knobs.models()
        names = agent.options.get("tools", {}).get("names")
        result: Record = {"argv": [], "cwd": os.getcwd(), "workspace": agent.workspace, "source": "bridge"}
        result["environment"] = {"names": sorted(os.environ), "values": {}}
        return BridgeTurn(
            run.emitter,
            agent.chat,
            prompt,
            Permissions([], [], True),
            key_source="env",
            model=(agent.model, dict(models)[agent.model]),
            models=[id for id, _ in models],
            mode="plan" if options.get("mode") == "AGENT_MODE_OPTION_PLAN" else None,
            tools=Toolset(
                None if names is None else _snake([*names]), _snake(agent.options.get("disallowedTools", []))
            ),
            approves_servers=True,
            knobs=knobs,
            configuration=self.configuration,
            workspace=agent.workspace,
            invocation=result,
            warn=_warn,
            hook_files=_hook_files(agent),
        )


# scenarios of this wire alone


def sdk_error(turn: Turn) -> None:
    if not turn.number("early", 0):
        turn.begin()
        turn.say("I was about to say more.")
    raise parsed(turn.text("error", "internal - - It failed."))


def sdk_result(turn: Turn) -> None:
    turn.begin()
    assert isinstance(turn.agent, BridgeEmitter)
    turn.agent.end(
        turn.text("status", "ERROR"), errorCode=turn.text("code", ""), errorMessage=turn.text("message", "It failed.")
    )


def mute(turn: Turn) -> None:
    hang()


_OWN: dict[str, Callable[[Turn], int | None]] = {"sdk-error": sdk_error, "sdk-result": sdk_result, "mute": mute}
assert not _OWN.keys() & SCENARIOS.keys()


# the wire


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "Server"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        bridge = self.server.bridge
        if bridge.knobs.flag("wedged"):
            hang()
        service, _, method = self.path.lstrip("/").partition("/")
        is_stream = method in STREAMS
        try:
            if self.headers.get("authorization") != f"Bearer {bridge.knobs.text('token') or bridge.token}":
                raise BridgeError("unauthenticated", "Unauthorized")
            if service not in SERVICES or self.headers.get("connect-protocol-version") != "1":
                raise BridgeError("not_found", f"Unknown service {service}")
            request = json.loads(body[5:] if is_stream else body or b"{}")
            bridge.log(method, request)
            if not is_stream:
                self._answer(200, bridge.unary(method, request))
                return
        except BridgeError as error:
            self._answer(error.status, error.payload())
            return
        try:
            self._stream(method, request)
        except OSError:  # whoever read has gone; the run goes on
            self.close_connection = True

    def _answer(self, status: int, result: Record) -> None:
        data = json.dumps(result).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, method: str, request: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/connect+json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            run = self._send(request) if method == "Send" else self._observe(request)
            end: Record = {} if run.error is None else {"error": run.error.payload()}
        except BridgeError as error:
            end = {"error": error.payload()}
        self._frame(end, flag=2)
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, request: dict[str, Any]) -> Run:
        bridge = self.server.bridge
        run = bridge.send(request)
        try:
            self._follow(run, bridge.knobs.number("keep_alive_seconds", 15))
        finally:
            run.is_read = False
        return run

    def _follow(self, run: Run, keep_alive_seconds: float) -> None:
        while True:
            with run.changed:
                run.changed.wait_for(lambda: run.sent < len(run.messages) or run.is_over, keep_alive_seconds)
                new, is_over = run.messages[run.sent :], run.is_over
            for message in new or ([] if is_over else [{}]):
                self._frame(message)
            with run.changed:
                run.sent += len(new)
                run.changed.notify_all()
            if is_over and not new:
                return

    def _observe(self, request: dict[str, Any]) -> Run:
        """Deltas are not told again."""
        run = self.server.bridge._run(request)
        with run.changed:
            run.changed.wait_for(lambda: run.is_over)
        result = [message for message in run.messages if "interactionUpdate" not in message]
        after = int(request.get("afterOffset") or -1)
        for offset, message in enumerate(result):
            if offset > after:
                self._frame({**message, "offset": str(offset)})
        return run

    def _frame(self, message: Record, flag: int = 0) -> None:
        data = json.dumps(message).encode()
        frame = bytes([flag]) + struct.pack(">I", len(data)) + data
        self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, bridge: Bridge, host: str, port: int) -> None:
        super().__init__((host, port), Handler)
        self.bridge = bridge

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # a socket, in truth


def _cwd(options: dict[str, Any]) -> str:
    folders = options.get("local", {}).get("cwd") or [os.getcwd()]
    return str(folders[0])


def _hook_files(agent: Agent) -> list[str]:
    """Of the sources of settings that the host has chosen, as the bridge names them."""
    places = {"PROJECT": agent.workspace, "USER": os.environ.get("HOME") or "/"}
    given = [str(name).rpartition("_")[2].upper() for name in agent.options.get("local", {}).get("settingSources", [])]
    return [os.path.join(places[name], ".cursor", "hooks.json") for name in given if name in places]


def _snake(names: list[str]) -> list[str]:
    return [re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name) for name in names]


def _warn(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201 -- a program's own output


def main(words: list[str], directory: str) -> None:
    given = dict(zip(words[::2], words[1::2], strict=False))
    bridge = Bridge(directory)
    if "--tool-callback-url" in given:
        bridge.callback = Callback(given["--tool-callback-url"], given.get("--tool-callback-auth-token", ""))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    time.sleep(bridge.knobs.number("slow_start_seconds"))
    if bridge.knobs.flag("not_ready"):
        _warn("the stand-in was told not to be ready")
        if bridge.knobs.text("not_ready") == "2":
            sys.exit(2)
        time.sleep(600)
    server = Server(bridge, given.get("--host", "127.0.0.1"), int(given.get("--port", "0")))
    url = f"http://127.0.0.1:{server.server_port}"
    ready: Record = {"schemaVersion": 1, "transport": "tcp", "protocol": "connect", "url": url, "pid": os.getpid()}
    if bridge.knobs.flag("token_in_line"):
        ready["authToken"] = bridge.token
    else:
        file = os.path.join(tempfile.mkdtemp(prefix="cursor-sdk-bridge-"), "auth-token")
        with open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as token:
            token.write(bridge.token)
        ready["authTokenFile"] = file
    _warn(f"cursor-sdk-bridge ready {json.dumps({**ready, 'workspaceRef': os.getcwd(), 'stateRoot': ''})}")
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:], os.getcwd())
