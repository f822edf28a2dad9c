"""A prompt in; the scenario that it names, and all that a scenario may use, out."""

import _signal as signal  # type: ignore[import-not-found] # without `enum`, which takes longer
import os
import re
import time
from _collections_abc import Callable, Iterable  # without `collections`, which takes longer

from tests.agent.config import Permissions, Toolset
from tests.agent.emitter import Call, Emitter, Record, random_letters
from tests.agent.knobs import Knobs
from tests.agent.sections import results_in
from tests.agent.sessions import Chat, new_id

_NAMED = re.compile(r'standin: ([a-z0-9-]+)((?:[ \t]+[a-z_]+=(?:"[^"\n]*"|[^\s"<]*))*)')
_SETTING = re.compile(r'([a-z_]+)=(?:"([^"\n]*)"|(\S*))')
_BODY = re.compile(r"^---[ \t]*\r?\n(.*?)(?:\n--- end|\Z)", re.MULTILINE | re.DOTALL)

_FIGURES = {
    "input": "inputTokens",
    "output": "outputTokens",
    "cache_read": "cacheReadTokens",
    "cache_write": "cacheWriteTokens",
}


class Request:
    """What the last scenario's line of a prompt says; without one, `name` is empty."""

    def __init__(self, prompt: str) -> None:
        found = next(reversed([*_NAMED.finditer(prompt)]), None)
        self.name = found[1] if found else ""
        settings = _SETTING.findall(found[2]) if found else []
        self.settings: dict[str, str] = {name: quoted or plain for name, quoted, plain in settings}
        body = _BODY.search(prompt, found.end()) if found else None
        self.body = body[1] if body else ""
        self.end = found.end() if found else 0
        command = self.settings.get("command") or self.body.strip() or "echo standin-ran"
        self.commands = [command, *([self.settings["then"]] if "then" in self.settings else [])]


def request_of(prompt: str, chat: Chat) -> Request:
    """A repair of bad JSON is asked for in the client's words, so the turn before decides about it; a program that
    was ended goes on without being named again, and so does a command that was rejected and is allowed now."""
    request = Request(prompt)
    if request.name:
        return request
    before = Request(chat.turns[-1]["prompt"]) if chat.turns else request
    if before.name == "json-bad-then-good":
        return before
    if "You may run this" in prompt and (result := _shell_before(chat)) is not None:  # as it is told
        result.commands = [command for command in result.commands if command in prompt]
        return result
    if chat.program is not None and (not chat.program["finished"] or results_in(prompt)):
        request.name = "program"
    return request


def _shell_before(chat: Chat) -> Request | None:
    before = (Request(turn["prompt"]) for turn in reversed(chat.turns))
    return next((request for request in before if request.name == "shell"), None)


class Turn:
    """What a scenario may use: the request, the permissions, the surroundings, and the agent's voice."""

    def __init__(
        self,
        agent: Emitter,
        chat: Chat,
        prompt: str,
        permissions: Permissions,
        *,
        key_source: str,
        model: tuple[str, str],
        models: Iterable[str],
        mode: str | None,
        tools: Toolset,
        approves_servers: bool,
        knobs: Knobs,
        configuration: str,
        workspace: str,
        invocation: Record,
        warn: Callable[[str], None],
        hook_files: Iterable[str] = (),
        plugins: Iterable[str] = (),
    ) -> None:
        self.agent = agent
        self.prompt = prompt
        self.history = list(chat.turns)  # without this turn
        self.request = request_of(prompt, chat)
        self.earlier_program = chat.program
        self.program: Record | None = None  # what a turn that goes on after this one must know
        self.permissions = permissions
        self.model, self._label = model
        self.models = list(models)
        self.read_only = mode in ("plan", "ask")
        self.tools = tools
        self.approves_servers = approves_servers
        self.plugins = list(plugins)
        self.knobs = knobs
        self.configuration = configuration
        self.workspace = workspace
        self.invocation = invocation
        self.warn = warn
        self._hook_files = [file for file in hook_files if os.path.exists(file)]
        self._chat = chat
        self._key_source = key_source

    def begin(self) -> None:
        self._chat.turns.append({"prompt": self.prompt, "answer": ""})
        self._chat.program = self.program
        self._chat.save()
        self.agent.begin(self.workspace, self._key_source, self._label, self.prompt)

    def save(self) -> None:
        if len(self._chat.turns) > len(self.history):
            self._chat.turns[-1]["answer"] = self.agent.said
            self._chat.program = self.program
            self._chat.save()

    def finish(self, usage: Record | None = None, *, counts: bool = True, end: bytes = b"\n") -> None:
        self.save()  # before the result: a client may resume as soon as it has read it
        self.agent.finish((usage or self._usage()) if counts else None, end=end)

    def _usage(self) -> Record:
        """As the request says, or guessed."""
        if any(name in self.request.settings for name in _FIGURES):
            return {wire: self.number(name, 0) for name, wire in _FIGURES.items()}
        guessed = {"inputTokens": 1000 + len(self.prompt) // 4, "outputTokens": 10 + len(self.agent.said) // 4}
        return {**guessed, "cacheReadTokens": 2048, "cacheWriteTokens": 0}

    def text(self, name: str, default: str) -> str:
        return self.request.settings.get(name, default)

    def number(self, name: str, default: int) -> int:
        return int(self.text(name, str(default)))

    def pause(self, name: str, default: int = 0) -> None:
        time.sleep(self.number(name, default) / 1000)

    def path(self, default: str) -> str:
        return os.path.join(self.workspace, self.text("path", default))

    def say(self, text: str) -> None:
        """In words, as models do."""
        for word in re.findall(r"\s*\S+|\s+$", text):
            self.agent.say(word)

    def think(self, text: str) -> None:
        for piece in pieces(text, 20):
            self.agent.think(piece)
        self.agent.stop_thinking()

    def blocked(self, tool: str, args: Record) -> str:
        """Why a hook does not let the tool be used, by its name in hooks; empty if it may be."""
        if not self._hook_files:
            return ""
        from tests.agent.hooks import reason_to_block  # here, because most runs have none

        return reason_to_block(self._hook_files, self.agent.session, self.workspace, tool, args)

    def call(self, tool: str, args: Record, *, names_itself: bool = False, description: str = "") -> Call:
        """`names_itself`: the arguments of some tools hold the call's id, too."""
        id = call_id(self.model)
        return Call(tool, id, {**args, "toolCallId": id} if names_itself else args, description)

    def use(self, call: Call, result: Record) -> None:
        self.agent.start(call)
        self.agent.complete(call, result)

    def end(self, call: Call, result: Record) -> None:
        """Of a call that has started, and perhaps was rejected."""
        match result:
            case {"rejected": dict(rejected)}:
                self.agent.reject(call, rejected)
            case _:
                self.agent.complete(call, result)


Scenario = Callable[[Turn], int | None]
SCENARIOS: dict[str, Scenario] = {}


def answers(name: str) -> Callable[[Callable[[Turn], None]], Callable[[Turn], None]]:
    """A scenario that goes well: begun before it, finished after it."""

    def register(tell: Callable[[Turn], None]) -> Callable[[Turn], None]:
        def run(turn: Turn) -> None:
            turn.begin()
            tell(turn)
            turn.finish()

        SCENARIOS[name] = run
        return tell

    return register


def runs(name: str) -> Callable[[Scenario], Scenario]:
    """A scenario that begins, and ends, as it likes; its value is the exit status."""

    def register(run: Scenario) -> Scenario:
        SCENARIOS[name] = run
        return run

    return register


def pieces(text: str, size: int) -> list[str]:
    """Of so many UTF-16 units: as a JavaScript program cuts, through a character if need be."""
    data = text.encode("utf-16-le", "surrogatepass")
    return [data[at : at + 2 * size].decode("utf-16-le", "surrogatepass") for at in range(0, len(data), 2 * size)]


def call_id(model: str) -> str:
    """Each maker's models have their own kind; two of the four kinds hold a line feed."""
    if model.startswith("claude"):
        return f"toolu_01{random_letters(22)}"
    if model.startswith("gpt"):
        return f"call_{random_letters(24)}\nfc_{os.urandom(25).hex()}"
    if model.startswith("composer"):
        return f"tool_{new_id()[:-1]}"
    return f"call-{new_id()}-0\nfc_{new_id()}_0"


def hang() -> None:
    while True:
        signal.pause()
