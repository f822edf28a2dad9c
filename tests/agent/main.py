"""A command line in; what cursor-agent would print, do and leave behind, out.

The checks come in the program's order: login, trust, model, prompt.
"""

import _signal as signal  # type: ignore[import-not-found] # without `enum`, which takes longer
import json
import os
import time
from _collections_abc import Sequence  # without `collections`, which takes longer

from tests.agent import failures
from tests.agent.account import Account
from tests.agent.arguments import COMMANDS, HIDDEN_COMMANDS, Parsed, help_text, options, parse, root_options
from tests.agent.config import Config, Toolset
from tests.agent.emitter import Emitter, Record, to_bytes
from tests.agent.failures import Failure
from tests.agent.knobs import Knobs
from tests.agent.quick import configuration_directory, is_logged
from tests.agent.scenarios import scenario_of
from tests.agent.sessions import Chat, Sessions
from tests.agent.turn import Turn, hang

STDIN, STDOUT, STDERR = 0, 1, 2


class Interrupted(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(words: Sequence[str], directory: str) -> int:
    """`directory` is where the launcher stands, and perhaps a file of knobs."""
    invocation = Invocation([os.fsencode(word).decode(errors="replace") for word in words], directory)
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _interrupt)
        time.sleep(invocation.knobs.number("slow_start_seconds"))
        return invocation.run()
    except Failure as failure:
        warn(failure.message)
        return failure.status
    except Interrupted as interrupted:
        if interrupted.number == signal.SIGINT:
            warn("Aborting operation...\nOperation cancelled")
        return 128 + interrupted.number
    except BrokenPipeError:
        return 1
    finally:
        invocation.log()


def _interrupt(number: int, _: object) -> None:
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)  # one is enough; the chat is being saved
    raise Interrupted(number)


def write(data: bytes, to: int = STDOUT) -> None:
    while data:
        data = data[os.write(to, data) :]


def warn(message: str) -> None:
    write(to_bytes(message + "\n"), STDERR)


def say(text: str) -> None:
    write(to_bytes(text + "\n"))


class Invocation:
    def __init__(self, words: list[str], directory: str) -> None:
        self.knobs = Knobs.read(directory, os.environ)
        self.words = words
        self.configuration = configuration_directory(os.environ)
        self.account = Account(self.knobs, Config(self.configuration, os.getcwd()))
        values = {name: value for name, value in os.environ.items() if is_logged(name)}
        self.record: Record = {
            "argv": words,
            "cwd": os.getcwd(),
            "workspace": os.getcwd(),
            "prompt": None,
            "source": None,
            "environment": {"names": sorted(os.environ), "values": values},
            "pid": os.getpid(),
            "pgid": os.getpgid(0),
            "config_dir": self.configuration,
            "session": None,
            "history": None,
        }
        self._logged = False

    def log(self) -> None:
        path = self.knobs.text("log")
        if path and not self._logged:
            self._logged = True
            with open(path, "ab", buffering=0) as file:
                file.write(json.dumps(self.record).encode() + b"\n")

    def run(self) -> int:
        parsed = parse(self.words, root_options(["--allowed-tools"] if self.knobs.flag("no_allowed_tools") else []))
        if parsed.flag("version"):
            say(self.account.version)
            return 0
        first = parsed.operands[0] if parsed.operands else ""
        if first != "agent" and (first in COMMANDS or first in HIDDEN_COMMANDS):
            return self._command(first, parsed)
        if "-h" in parsed.unknown or "--help" in parsed.unknown:
            say(help_text())
            return 0
        if parsed.unknown:
            raise Failure(f"error: unknown option '{parsed.unknown[0]}'")
        if parsed.flag("list-models"):
            say(self.account.models(parsed))
            return 0
        if not parsed.flag("print") and os.isatty(STDIN) and os.isatty(STDOUT):
            raise Failure("standin: only the print mode is imitated", 64)
        return self._turn(parsed, parsed.operands[1:] if first == "agent" else parsed.operands)

    # a turn

    def _turn(self, parsed: Parsed, operands: list[str]) -> int:
        format = parsed.value("output-format") or "text"
        if format not in ("text", "json", "stream-json"):
            raise Failure(f"Error: Invalid output format: {format}")
        workspace = os.path.abspath(parsed.value("workspace") or os.curdir)
        if not os.path.isdir(workspace):
            raise Failure(f"Error: Workspace does not exist: {workspace}")
        self.record["workspace"] = workspace
        config = Config(self.configuration, workspace)
        key_source = self.account.log_in(parsed)
        force = self._check_trust(parsed, config, workspace)
        model = self._choose_model(parsed, config)
        prompt = self._prompt(operands)
        chat = self._chat(parsed, Sessions(self.configuration, workspace))
        self.log()
        agent = Emitter(write, warn, chat.id, format=format, partial=parsed.flag("stream-partial-output"))
        agent.shows_thinking = parsed.flag("show-thinking")
        agent.environment = {"env": dict(os.environ)} if parsed.flag("printenv") else {}
        turn = Turn(
            agent,
            chat,
            prompt,
            config.permissions(force, ignores_deny=self.knobs.flag("ignores_deny")),
            key_source=key_source,
            model=model,
            models=[id for id, _ in self.knobs.models()],
            mode="plan" if parsed.flag("plan") else parsed.value("mode"),
            tools=self._tools(parsed),
            approves_servers=parsed.flag("approve-mcps"),
            knobs=self.knobs,
            configuration=self.configuration,
            workspace=workspace,
            invocation=self.record,
            warn=warn,
            hook_files=[f"{folder}/hooks.json" for folder in (self.configuration, os.path.join(workspace, ".cursor"))],
            plugins=parsed.given.get("plugin-dir", []),
        )
        try:
            for refused in ("system-prompt", "exclude-workspace-context"):
                if parsed.flag(refused):  # known to the program, but not to the service
                    turn.begin()
                    raise failures.retriable(f"[invalid_argument] unknown option '--{refused}'")
            status = scenario_of(turn.request)(turn) or 0
        finally:
            turn.save()
        if status == 0 and self.record["source"] == "argument":
            _wait_for_the_end_of_stdin()
        return status

    def _check_trust(self, parsed: Parsed, config: Config, workspace: str) -> bool:
        force = parsed.flag("force", "yolo")
        if parsed.flag("trust"):
            config.trust()
        elif not (force or config.trusted or self.knobs.text("trust") == "all"):
            raise failures.untrusted(workspace)
        if force and self.knobs.flag("force_forbidden"):
            raise failures.force_forbidden()
        if parsed.value("sandbox") == "enabled" and self.knobs.flag("sandbox_missing"):
            raise failures.no_sandbox()
        return force

    def _choose_model(self, parsed: Parsed, config: Config) -> tuple[str, str]:
        """Id and label. A listed id will do, and so will what one begins with."""
        models = self.knobs.models()
        wanted = parsed.value("model")
        if wanted is None:
            return config.model, dict(models).get(config.model, config.model)
        for id, label in models:
            if id == wanted or id.startswith(f"{wanted}-"):
                config.select_model(id, label)
                return id, label
        raise failures.unknown_model(wanted, [id for id, _ in models])

    def _tools(self, parsed: Parsed) -> Toolset:
        if self.knobs.flag("ignores_deny"):
            return Toolset()
        return Toolset(parsed.given.get("allowed-tools"), parsed.given.get("exclude-tools", []))

    def _prompt(self, operands: list[str]) -> str:
        prompt = " ".join(operands)
        self.record["source"] = "argument" if prompt else "stdin"
        if not prompt and not os.isatty(STDIN) and self.account.version >= "2026.08":  # 2026.07.16 did not read it
            with open(STDIN, "rb", closefd=False) as file:
                prompt = file.read().decode(errors="replace")
        if not prompt:
            raise failures.no_prompt()
        self.record["prompt"] = prompt
        return prompt

    def _chat(self, parsed: Parsed, sessions: Sessions) -> Chat:
        resumed = parsed.value("resume")
        if resumed:
            chat = sessions.resume(resumed)
        elif parsed.flag("continue", "resume"):
            chat = sessions.newest()
        else:
            chat = sessions.create(parsed.value("new-session-id"))
        self.record["session"] = chat.id
        self.record["history"] = list(chat.turns)
        return chat

    # the other commands

    def _command(self, name: str, parsed: Parsed) -> int:
        below = parse(parsed.unknown, options(["--format <format>"] if name in ("status", "whoami", "about") else []))
        if name == "help" or "-h" in below.unknown or "--help" in below.unknown:
            say(help_text())
            return 0
        if below.unknown:
            raise Failure(f"error: unknown option '{below.unknown[0]}'")
        wants_json = below.value("format") == "json"
        match name:
            case "status" | "whoami":
                say(self.account.status_json() if wants_json else self.account.status())
            case "about":
                say(self.account.about_json() if wants_json else self.account.about())
            case "models":
                say(self.account.models(parsed))
            case "create-chat":
                chat = Sessions(self.configuration, os.getcwd()).create()
                chat.save()
                say(chat.id)
                if self.knobs.flag("create_chat_hangs"):  # one report says so
                    hang()
            case "login" | "logout":
                say("Logged in" if name == "login" else "Logged out")
            case "update":
                say("Already up to date")
            case "acp" if self.knobs.flag("acp_missing"):
                raise Failure("error: unknown command 'acp'")
            case "acp" if recording := self.knobs.text("acp_recording"):
                from tests.agent.acp_player import Player

                return Player(recording).play()
            case "acp":
                from tests.agent.acp import Server  # here, because it needs threads and HTTP

                return Server(self, parsed).serve()
            case "ls" | "resume":
                raise Failure("ERROR Raw mode is not supported on the current process.stdin")
            case _:
                raise Failure(f"standin: the command '{name}' is not imitated", 64)
        return 0


def _wait_for_the_end_of_stdin() -> None:
    """With a prompt among the arguments, an open stdin keeps the program alive after its result: seen in 2026.09.10."""
    if os.isatty(STDIN):
        return
    try:
        while os.read(STDIN, 65536):
            pass
    except OSError:  # it was closed from the beginning
        return
