"""JSON-RPC on stdin in; the agent's side of the Agent Client Protocol on stdout out, playing the same scenarios.

Of the standard library alone, like the rest. Sessions are kept below the configuration directory. Each prompt is
played in a thread of its own, so several sessions go on at once; a scenario that would end the program ends it for all.
"""

import json
import os
import threading
import time
from itertools import count
from queue import SimpleQueue

from tests.agent import mcp_client, servers
from tests.agent.acp_emitter import AcpEmitter, AcpPermissions, Stopped
from tests.agent.acp_scenarios import overrides
from tests.agent.arguments import Parsed
from tests.agent.config import Config
from tests.agent.emitter import Record, to_line
from tests.agent.failures import Failure
from tests.agent.scenarios import scenario_of
from tests.agent.sessions import Chat, new_id
from tests.agent.turn import Turn

TYPE_CHECKING = False  # as in `typing`, whose import takes long
if TYPE_CHECKING:
    from typing import Any

    from tests.agent.main import Invocation

_MODES = ("agent", "plan", "ask")
_EFFORTS = ("low", "medium", "high", "xhigh")
_PARAMETERS = {word: ("effort", word) for word in _EFFORTS}
_PARAMETERS |= {"fast": ("fast", "true"), "thinking": ("thinking", "true"), "256k": ("context", "256k")}
_ENDS_LATE_SECONDS = 10


class Refusal(Exception):
    def __init__(self, code: int, message: str, data: object) -> None:
        super().__init__(message)
        self.error: Record = {"code": code, "message": message, "data": data}


def invalid(message: str) -> Refusal:
    return Refusal(-32602, "Invalid params", {"message": message})


def acp_model(model: str) -> tuple[str, dict[str, str]]:
    """`gpt-5.3-codex-low` is `gpt-5.3-codex` with `effort=low` here."""
    if model == "auto":
        return "default", {}
    words = model.split("-")
    given: dict[str, str] = {}
    while words[-1] in _PARAMETERS:
        name, value = _PARAMETERS[words.pop()]
        given[name] = value
    return "-".join(words), given


class Models:
    """The models of the CLI as ACP offers them. One is chosen for the whole process."""

    def __init__(self, listed: list[tuple[str, str]]) -> None:
        self._variants = [(*acp_model(id), id, label) for id, label in listed]
        self.has_options = False  # the client knows options; else there is one variant of each model
        self._id, self._given = "default", dict[str, str]()

    @property
    def chosen(self) -> tuple[str, str]:
        """The CLI's id and label."""
        wanted = {name: value for name, value in self._given.items() if value != "false"}
        of_model = [variant for variant in self._variants if variant[0] == self._id]
        of_model.sort(key=lambda variant: variant[1] != wanted)
        return of_model[0][2], of_model[0][3]

    def choose(self, name: str, value: str) -> None:
        known = {option["id"]: option for option in self.options()}
        if name not in known or value not in [one["value"] for one in known[name]["options"]]:
            raise invalid(f"Invalid {name} value: {value}")
        if name == "model":
            self._id = value.partition("[")[0]
            self._given = dict(next(variant[1] for variant in self._variants if variant[0] == self._id))
        else:
            self._given[name] = value

    def options(self) -> "list[Any]":
        if not self.has_options:
            ids = {base: f"{base}[{','.join(map('='.join, given.items()))}]" for base, given, *_ in self._variants}
            return [_option("model", ids[self._id], [*ids.values()])]
        of_model = [given for base, given, *_ in self._variants if base == self._id]
        names = dict.fromkeys(name for given in of_model for name in given)
        found = [_option("model", self._id, [*dict.fromkeys(base for base, *_ in self._variants)])]
        for name in names:
            values = [*dict.fromkeys(given[name] for given in of_model if name in given)]
            values = ["false", "true"] if values == ["true"] else values
            found.append(_option(name, self._given.get(name, values[0]), values))
        return found


def _option(id: str, current: str, values: list[str]) -> "dict[str, Any]":
    named = [{"value": value, "name": "Auto" if value.startswith("default") else value} for value in values]
    return {"id": id, "name": id.capitalize(), "type": "select", "currentValue": current, "options": named}


class Session:
    def __init__(self, server: "Server", chat: Chat, cwd: str, mcp: list[Record]) -> None:
        self.server = server
        self.id = chat.id
        self.chat = chat
        self.cwd = cwd
        self.mcp = mcp
        self.mode = "agent"
        self.spent = 0
        self.is_deaf = False
        self.agent: AcpEmitter | None = None  # while a prompt is played
        self.turn: Turn | None = None


class Server:
    def __init__(self, invocation: "Invocation", parsed: Parsed) -> None:
        self.knobs = invocation.knobs
        self._invocation, self._parsed = invocation, parsed
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._ids = count()
        self._asked: dict[object, SimpleQueue[object]] = {}
        self._models = Models(self.knobs.models())
        self._has_worked = False
        setattr(servers, "configured", self._configured)  # noqa: B010 -- a name that it does not export

    def serve(self) -> int:
        rest = b""
        try:
            while piece := os.read(0, 65536):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._receive(line)
        finally:
            for session in self._sessions.values():
                if session.turn is not None:
                    session.turn.save()
        if self._has_worked:
            time.sleep(_ENDS_LATE_SECONDS)
        return 0

    # messages

    def write(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[os.write(1, data) :]

    def send(self, method: str, params: Record) -> None:
        if self.knobs.flag("acp_garbage"):
            self.write(b'Debugger attached.\n{"jsonrpc":"2.0"\n[1]\n{"jsonrpc":"2.0","id":[1],"result":0}\n\xff\n')
        self.write(to_line({"jsonrpc": "2.0", "method": method, "params": params}))

    def reply(self, id: object, answer: Record) -> None:
        self.write(to_line({"jsonrpc": "2.0", "id": id, **answer}))

    def ask(self, method: str, params: Record) -> object:
        id = next(self._ids)
        self._asked[id] = answer = SimpleQueue[object]()
        self.write(to_line({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        return answer.get()

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # ignored without any answer
        match message:
            case {"id": id, "method": str(method), **more}:
                params = more.get("params")
                self._request(id, method, params if isinstance(params, dict) else {})
            case {"method": "session/cancel", "params": {"sessionId": str(id)}}:
                session = self._sessions.get(id)
                if session is not None and session.agent is not None and not session.is_deaf:
                    session.agent.stop()
            case {"id": id, **more} if id in self._asked:
                self._asked.pop(id).put(more.get("result"))
            case _:
                pass

    def _request(self, id: object, method: str, params: Record) -> None:
        if self._is_wedged(method):
            return
        if method == "session/prompt":
            threading.Thread(target=self._prompt, args=(id, params), daemon=True).start()
            return
        try:
            self.reply(id, {"result": self._answer(method, params)})
        except Refusal as refusal:
            self.reply(id, {"error": refusal.error})

    def _is_wedged(self, method: str) -> bool:
        file = self.knobs.text("acp_wedged_file")
        return self.knobs.text("acp_wedged") in ("1", "true", method) or (file != "" and os.path.exists(file))

    def _answer(self, method: str, params: Record) -> Record:
        match method, params:
            case "initialize", _:
                can_choose = "parameterizedModelPicker" in json.dumps(params)
                self._models.has_options = can_choose and not self.knobs.flag("acp_one_variant")
                return _HELLO
            case "authenticate", _:
                raise invalid("Failed to open browser for login. Please visit: https://cursor.com/loginDeepControl")
            case "session/list", _:
                return {"sessions": [{"sessionId": one.id, "cwd": one.cwd} for one in self._sessions.values()]}
            case "session/new", {"cwd": str(cwd), "mcpServers": list(mcp)}:
                return self._new(cwd, mcp)
            case "session/load", {"sessionId": str(id), "cwd": str(cwd), "mcpServers": list(mcp)}:
                return self._load(id, cwd, mcp)
            case "session/set_mode", {"sessionId": str(id), "modeId": str(mode)}:
                if mode not in _MODES:
                    valid = f"Invalid mode ID: {mode}. Valid modes: {', '.join(_MODES)}"
                    raise Refusal(-32603, "Internal error", {"details": valid})
                self._session(id).mode = mode
                self._update(id, {"sessionUpdate": "current_mode_update", "currentModeId": mode})
                return {}
            case "session/set_config_option", {"sessionId": str(id), "configId": str(name), "value": str(value)}:
                if self.knobs.flag("acp_no_config_option"):
                    raise Refusal(-32601, "Method not found", {"method": method})
                self._session(id)
                self._models.choose(name, value)
                return {"configOptions": self._models.options()}
            case "session/set_model", {"sessionId": str(id), "modelId": str(model)}:
                self._session(id)
                self._models.choose("model", model)
                return {}
            case _:
                raise Refusal(-32601, "Method not found", {"method": method})

    def _session(self, id: str) -> Session:
        if id not in self._sessions:
            raise invalid(f'Session "{id}" not found')
        return self._sessions[id]

    def _update(self, id: str, update: Record) -> None:
        self.send("session/update", {"sessionId": id, "update": update})

    # sessions

    def _new(self, cwd: str, mcp: list[Record]) -> Record:
        self._log_in()
        time.sleep(self.knobs.number("acp_session_seconds"))
        id = new_id()
        self._sessions[id] = session = Session(self, Chat(id, self._place(id), []), cwd, mcp)
        self._invocation.record["servers"] = mcp
        if self.knobs.flag("acp_logs_sessions"):
            self._log(session, None, 0)
        return {"sessionId": id, **self._about(session)}

    def _load(self, id: str, cwd: str, mcp: list[Record]) -> Record:
        self._log_in()
        try:
            with open(os.path.join(self._place(id), "store.db"), encoding="utf-8", errors="surrogatepass") as file:
                stored = json.load(file)
        except (OSError, ValueError):
            raise invalid(f'Session "{id}" not found') from None
        chat = Chat(id, self._place(id), stored["turns"], stored.get("program"))
        self._sessions[id] = session = Session(self, chat, cwd, mcp)
        for turn in chat.turns:
            for name, text in (("user_message_chunk", turn["prompt"]), ("agent_message_chunk", turn["answer"])):
                self._update(id, {"sessionUpdate": name, "content": {"type": "text", "text": text}})
        return self._about(session)

    def _log_in(self) -> None:
        try:
            self._invocation.account.log_in(self._parsed)
        except Failure as failure:
            if "API key" in failure.message:
                result = {"message": "Failed to initialize session services"}
                raise Refusal(-32603, "Internal error", result) from None
            said = "Please run 'agent login' first, then call authenticate() with methodId 'cursor_login'."
            result = {"message": f"Authentication required. {said}"}
            raise Refusal(-32000, "Authentication required", result) from None

    def _place(self, id: str) -> str:
        return os.path.join(self._invocation.configuration, "acp-sessions", os.path.basename(id))

    def _about(self, session: Session) -> Record:
        options = self._models.options()
        models = [{"modelId": one["value"], "name": one["name"]} for one in options[0]["options"]]
        return {
            "modes": {"currentModeId": session.mode, "availableModes": [{"id": id, "name": id} for id in _MODES]},
            "models": {"currentModelId": options[0]["currentValue"], "availableModels": models},
            "configOptions": [_option("mode", session.mode, [*_MODES]), *options],
        }

    # turns

    def _prompt(self, id: object, params: Record) -> None:
        match params:
            case {"sessionId": str(session_id), "prompt": list(blocks)} if session_id in self._sessions:
                session = self._sessions[session_id]
            case _:
                self.reply(id, {"error": invalid("Session not found").error})
                return
        text = "".join(str(block["text"]) for block in blocks if block["type"] == "text")
        if session.agent is not None:
            session.agent.stop()  # a second prompt cancels the first
        self._has_worked = True
        session.agent = agent = AcpEmitter(session, id, self.write)
        session.turn = turn = self._turn(session, agent, text)
        self._log(session, text, len(blocks))
        try:
            play = overrides(session, agent).get(turn.request.name) or scenario_of(turn.request)
            code = play(turn)
            if not agent.is_answered:  # it ends without a result
                os._exit(code or 0)
        except Stopped:
            pass
        except Failure as failure:
            self._fail(agent, failure)
        except Exception:  # noqa: BLE001 -- whatever it is
            import traceback  # here: its import is slow

            traceback.print_exc()
            os._exit(70)  # a mistake of the stand-in's must not look like silence
        finally:
            if session.agent is agent:
                session.agent = None
            turn.save()

    def _fail(self, agent: AcpEmitter, failure: Failure) -> None:
        if agent.has_begun:
            agent.fail(failure.message)
            agent.answer(result={"stopReason": "end_turn"})
        elif "Authentication required" in failure.message:
            agent.answer(error=Refusal(-32000, "Authentication required", {"message": failure.message}).error)
        else:
            agent.answer(error=Refusal(-32603, "Internal error", {"message": failure.message}).error)

    def _turn(self, session: Session, agent: AcpEmitter, prompt: str) -> Turn:
        invocation, parsed = self._invocation, self._parsed
        config = Config(invocation.configuration, session.cwd)
        rules = config.permissions(parsed.flag("force", "yolo"), ignores_deny=self.knobs.flag("ignores_deny"))
        return Turn(
            agent,
            session.chat,
            prompt,
            AcpPermissions(rules, agent, session),
            key_source="login",
            model=self._models.chosen,
            models=[id for id, _ in self.knobs.models()],
            mode=session.mode,
            tools=invocation._tools(parsed),
            approves_servers=True,  # see `_configured`
            knobs=self.knobs,
            configuration=session.id,  # by which `_configured` finds the session
            workspace=session.cwd,
            invocation={**invocation.record, "workspace": session.cwd, "source": "acp"},
            warn=_warn,
        )

    def _configured(self, workspace: str, session_id: str) -> list[mcp_client.Address]:
        """The session's own servers, and with `--approve-mcps` those of the files; each name once."""
        found: dict[str, mcp_client.Address] = {}
        if self._parsed.flag("approve-mcps") and not self.knobs.flag("acp_ignores_files"):
            for address in mcp_client.configured(workspace, self._invocation.configuration):
                found[address.name] = address
        if not self.knobs.flag("acp_ignores_servers"):
            for server in self._sessions[session_id].mcp:
                name = str(server["name"])
                found[name] = mcp_client.Address(name, str(server["url"]), {})
        return [*found.values()]

    def _log(self, session: Session, prompt: str | None, blocks: int) -> None:
        path = self.knobs.text("log")
        if path:
            about = {"prompt": prompt, "source": "acp", "workspace": session.cwd, "session": session.id}
            result = {
                **self._invocation.record,
                **about,
                "blocks": blocks,
                "mode": session.mode,
                "model": self._models.chosen[0],
            }
            with open(path, "ab", buffering=0) as file:
                file.write(json.dumps(result).encode() + b"\n")


def _warn(text: str) -> None:
    data = text.encode() + b"\n"
    while data:
        data = data[os.write(2, data) :]


_HELLO: Record = {
    "protocolVersion": 1,
    "agentCapabilities": {
        "loadSession": True,
        "mcpCapabilities": {"http": True, "sse": True},
        "promptCapabilities": {"audio": False, "embeddedContext": False, "image": True},
        "sessionCapabilities": {"list": {}, "subagents": {}},
    },
    "authMethods": [{"id": "cursor_login", "name": "Cursor Login", "description": "Run 'agent login' first."}],
}
