"""An interactive conversation, as a process of its own on a terminal, with the stand-in agent."""

import os
import pty
import re
import select
import signal
import stat
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cursor_gateway.cli.terminal.session import context_window, in_thousands
from tests.agent.install import install
from tests.agent.records import records
from tests.cli.processes import TIMEOUT
from tests.gateways import running_gateway
from tests.preloaded import Process, start
from tests.server.test_leaks import ended_agents

CTRL_C, CTRL_D, CTRL_V, UP, TAB, SHIFT_TAB, ALT_ENTER = "\x03", "\x04", "\x16", "\x1b[A", "\t", "\x1b[Z", "\x1b\r"
_CODES = re.compile(r"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")
_LIMIT_SECONDS = 100  # for a red build only
_READY = "Ask the agent ·"  # of an empty prompt


class Person:
    """Types on the terminal and reads it, from top to bottom. The terminal says where its cursor is, if asked."""

    def __init__(self, file: int, process: Process) -> None:
        self._file, self.process = file, process
        self._seen = self.written = ""

    def sees(self, text: str) -> str:
        """Waits for it; returns what came up to its end. White space does not count: programs move the cursor."""
        wanted = re.compile(r"\s*".join(re.escape(letter) for letter in text if not letter.isspace()))
        while (found := wanted.search(_CODES.sub("", self._seen))) is None:
            assert select.select([self._file], [], [], _LIMIT_SECONDS)[0], (
                f"{text!r} did not come; what came: {self._seen!r}"
            )
            raw = os.read(self._file, 65536)
            for _ in range(raw.count(b"\x1b[6n")):
                os.write(self._file, b"\x1b[1;1R")
            self._seen += raw.decode("utf-8", "replace")
            self.written += raw.decode("utf-8", "replace")
        plain = _CODES.sub("", self._seen)
        before, self._seen = plain[: found.end()], plain[found.end() :]
        return before

    def sees_a_prompt(self) -> None:
        """On a terminal that shows nothing but the prompt itself: waits until it takes single keys."""
        self.sees("> ")
        until = time.monotonic() + _LIMIT_SECONDS
        while termios.tcgetattr(self._file)[3] & termios.ICANON:
            assert time.monotonic() < until
            time.sleep(0.01)

    def types(self, keys: str) -> None:
        os.write(self._file, keys.encode())

    def says(self, text: str) -> None:
        self.sees(_READY)
        self.types(f"{text}\r")

    def leaves(self) -> str:
        self.sees(_READY)
        self.types(CTRL_D)
        return self.ended()

    def ended(self, status: int = 0) -> str:
        """All that came until the end."""
        rest = self._seen
        with suppress(OSError):  # how Linux says that the other end is closed
            while piece := os.read(self._file, 65536):
                rest += piece.decode("utf-8", "replace")
        assert self.process.wait(TIMEOUT) == status
        return _CODES.sub("", rest)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    install(tmp_path / "bin", knobs={"log": str(tmp_path / "agent.log")})
    (tmp_path / "work").mkdir()
    with ended_agents(tmp_path):
        yield tmp_path


@contextmanager
def conversing(home: Path, *arguments: str, **more: str) -> Iterator[Person]:
    ours, theirs = pty.openpty()
    environment = {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:/usr/bin:/bin",
        "SHELL": "/bin/sh",
        "TERM": "xterm-256color",
        "CURSOR_GATEWAY_DATA_DIR": str(home / "data"),
        "CURSOR_GATEWAY_RUNTIME_DIR": str(home / "runtime"),
        "CURSOR_GATEWAY_GRACE_SECONDS": "0.5",
        **more,
    }
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with start([*arguments], environment, home / "work", **streams, start_new_session=True) as process:
        os.close(theirs)
        try:
            yield Person(ours, process)
            process.wait(TIMEOUT)
        finally:
            if process.poll() is None:
                process.kill()
            os.close(ours)


def prompts(home: Path) -> list[str]:
    return [record["prompt"] for record in records(home / "agent.log") if record["prompt"] is not None]


# --- talking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("chat",)])
def test_a_conversation_goes_on_until_the_person_leaves(arguments: tuple[str, ...], home: Path) -> None:
    with conversing(home, *arguments) as person:
        person.sees("it stops when this conversation exits")
        person.says("the first thing")
        person.sees("You said: the first thing")
        person.says("standin: history")
        person.sees('"prompts": ["the first thing"]')
        assert "Continue with: cursor-gateway chat --conversation conv_" in person.leaves()


def test_a_prompt_may_have_several_lines(home: Path) -> None:
    with conversing(home) as person:
        person.sees(_READY)
        person.types(f"one{ALT_ENTER}two\nthree\x1b[200~\rfour\rfive\x1b[201~\r")
        person.sees("You said: one")
        person.leaves()
    assert prompts(home)[-1] == "one\ntwo\nthree\nfour\nfive"


def test_ctrl_c_stops_the_turn_and_the_conversation_goes_on(home: Path) -> None:
    with conversing(home) as person:
        person.says("standin: slow count=1000 delay_ms=300")
        person.sees("0 1 2")
        person.process.send_signal(signal.SIGINT)
        person.sees("Stopped.")
        person.says("standin: history")
        person.sees("count=1000")
        person.sees(_READY)
        person.types(f"not this{CTRL_C}{CTRL_C}")
        person.sees("Press Ctrl-C again to leave.")
        person.types(CTRL_C)
        person.ended()
    assert len(prompts(home)) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_window_stops_the_agent(number: signal.Signals, home: Path) -> None:
    """The fixture looks for what is left of it."""
    with conversing(home) as person:
        person.says("standin: slow count=1000 delay_ms=300")
        person.sees("0 1 2")
        person.process.send_signal(number)
        person.ended(128 + number)


def test_a_mistake_does_not_end_the_conversation(home: Path) -> None:
    with conversing(home, "chat", "--model", "no-such-model") as person:
        person.says("hello")
        person.sees("lists the known ones")
        person.says("/mo")
        person.sees("It could be /model, /mode.")
        person.says("/resume conv_none")
        person.sees("Unknown conversation")
        person.says("/model auto")
        person.sees("The model is now auto.")
        person.says("hello again")
        person.sees("You said: hello again")
        person.says("/exit")
        person.ended()


def test_a_terminal_that_can_do_nothing_has_a_prompt_too(home: Path) -> None:
    with conversing(home, TERM="dumb") as person:
        person.sees_a_prompt()
        person.types("hello\r")
        person.sees("You said: hello")
        person.sees_a_prompt()
        person.types(CTRL_D)
        assert "\x1b" not in person.ended()


def test_who_wants_no_colours_gets_none(home: Path) -> None:
    with conversing(home, NO_COLOR="1") as person:
        person.says("hello")
        person.sees("You said: hello")
        person.leaves()
    assert not re.findall(r"\x1b\[[0-9;]*\b(?:3[0-7]|4[0-7]|9[0-7]|38|48)[;m]", person.written)


# --- decisions and files ----------------------------------------------------------------------------


def test_permission_is_asked_for_and_changes_are_shown_and_undone(home: Path) -> None:
    file = home / "work" / "a.txt"
    file.write_text("alpha\nbeta\n")
    with conversing(home) as person:
        person.says("/undo")
        person.sees("Nothing was said")
        person.says('standin: shell command="echo native-ok"')
        person.sees("o, c, w, d:")
        person.types("o\n")
        person.sees("Allow once: echo native-ok")
        person.sees("It ended with 0")
        person.says("standin: edit path=a.txt old=beta new=gamma")
        person.sees("The file is changed.")
        assert file.read_text() == "alpha\ngamma\n"
        person.says("/changes")
        person.sees("- beta")
        person.sees("+ gamma")
        person.says("/undo")
        person.sees("[y/N]")
        person.types("n\n")
        person.says("/undo")
        person.sees("[y/N]")
        person.types("y\n")
        person.sees("Reverted a.txt.")
        assert file.read_text() == "alpha\nbeta\n"
        person.says("/undo")
        person.sees("no changes in this conversation that could be reverted")
        person.says("what now?")
        person.sees("You said: what now?")
        person.sees("I have reverted your changes to a.txt")
        person.leaves()


def test_output_of_the_shell_goes_to_the_agent_only_if_it_is_meant_to(home: Path) -> None:
    with conversing(home) as person:
        person.says("!echo shared; exit 3")
        person.sees("Exit status 3. The agent gets this output")
        person.says("!!echo alone")
        person.sees("alone")
        person.says("what did I run?")
        person.sees("You said: what did I run?")
        person.says("!printf beg%s un; exec cat")
        person.sees("begun")  # so it runs
        person.process.send_signal(signal.SIGINT)
        person.sees("Stopped.")
        person.says("and now?")
        person.sees("You said: and now?")
        person.leaves()
    first, second = prompts(home)
    assert first == "what did I run?\n\nI ran `echo shared; exit 3` (exit status 3):\n```\nshared\n```"
    assert second == "and now?"


def test_an_image_is_attached_by_its_path(home: Path) -> None:
    (home / "work" / "a picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(32))
    (home / "work" / "no.png").write_bytes(b"text")
    with conversing(home) as person:
        person.says("what is in a\\ picture.png?")
        person.sees("With 1 image.")
        person.sees("You said:")
        person.says("and @no.png")
        person.sees("an image must be a png")
        person.leaves()


def test_an_image_is_attached_from_the_clipboard(home: Path) -> None:
    program = home / "bin" / "pngpaste"
    program.write_text("#!/bin/sh\nprintf '\\211PNG\\r\\n\\032\\n0123456789012345'\n")
    program.chmod(0o755)
    with conversing(home) as person:
        person.sees(_READY)
        person.types(f"what is {CTRL_V}")
        person.sees("[image 1]")
        person.types("?\r")
        person.sees("With 1 image.")
        person.sees("You said: what is [image 1]?")
        person.leaves()


def test_what_was_allowed_is_listed_and_revoked(home: Path) -> None:
    with conversing(home) as person:
        person.says('standin: shell command="echo native-ok"')
        person.sees("o, c, w, d:")
        person.types("w\n")
        person.sees("It ended with 0")
        person.says("/permissions")
        (id,) = re.findall(r"\bperm_[0-9a-f]+", person.sees("/permissions revoke ID"))
        person.says("/permissions revoke nothing")
        person.sees("the beginning of one id")
        person.says(f"/permissions revoke {id}")
        person.sees("Revoked")
        person.says("/permissions")
        person.sees("You have allowed nothing else.")
        person.leaves()


# --- the prompt -------------------------------------------------------------------------------------


def test_prompts_are_remembered_in_a_private_file(home: Path) -> None:
    for _ in range(2):
        with conversing(home) as person:
            person.sees(_READY)
            person.types("remember this\r" if _ == 0 else f"{UP}\r")
            person.sees("You said: remember this")
            person.leaves()
    file = home / "data" / "prompts.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with conversing(home, CURSOR_GATEWAY_HISTORY="false") as person:
        person.says("nobody hears this")
        person.sees("You said: nobody")
        person.leaves()
    assert "nobody" not in file.read_text()


def test_commands_arguments_and_files_are_completed(home: Path) -> None:
    (home / "work" / "price.py").touch()
    with conversing(home) as person:
        person.sees(_READY)
        person.types("/mod")
        person.sees("Choose the mode: agent, plan, ask or debug.")
        person.types("e pl")
        person.sees("plan")
        person.types(f"{TAB}\r\r")
        person.sees("The mode is plan.")
        person.sees(_READY)
        person.types("see @pri")
        person.sees("price.py")
        person.types(f"{TAB}\r\r")
        person.sees("You said: see @price.py")
        person.leaves()
    assert prompts(home) == ["see @price.py"]


def test_models_are_listed_and_chosen_and_modes_changed_by_a_key(home: Path) -> None:
    with conversing(home) as person:
        person.says("/model")
        person.sees("GPT-5 Mini")
        person.says("/model mini")
        person.sees("The model is now gpt-5-mini.")
        person.says("/model 5")
        person.sees("fits several models")
        person.says("/model none-of-them")
        person.sees("fits no model")
        person.sees("gpt-5-mini · agent")
        person.types(SHIFT_TAB)
        person.sees("pla")  # only what differs is drawn
        person.types("/mode\r")
        person.sees("The mode is plan.")
        person.says("/mode nothing")
        person.sees("There is no mode")
        person.leaves()


@pytest.mark.parametrize("reports", [True, False])
def test_the_status_line_has_the_agents_figures_and_marks_estimates(reports: bool, home: Path) -> None:
    if reports:
        install(home / "bin", knobs={"log": str(home / "agent.log"), "acp_usage": "1"})
    with conversing(home) as person:
        person.says("hello")
        person.sees("You said: hello")
        person.sees(_READY)
        line = person.sees("tokens")
        assert line.count("\n") == 1  # right below the prompt
        assert re.search(r"agent · context [\d,]+ · [\d,]+ tokens$" if reports else r"agent · ~[\d,]+ tokens$", line)
        person.types(CTRL_D)
        person.ended()


@pytest.mark.parametrize(
    ("names", "window"),
    [
        (["claude-opus-4-8[context=1m,effort=high]"], " of 1M"),
        (["sonnet-5", "Claude Sonnet 5 1M Thinking"], " of 1M"),
        (["gpt-5.4", "GPT-5.4 272k"], " of 272K"),
        (["grok-4.7-256k"], " of 256K"),
        (["gpt-4.1m", "Composer 2.5 Fast", "qwen3-30b"], ""),
        ([], ""),
    ],
)
def test_the_window_of_a_model_is_known_only_from_its_names(names: list[str], window: str) -> None:
    assert context_window(names) == window


@pytest.mark.parametrize(("tokens", "text"), [(0, "0"), (9_999, "9,999"), (24_500, "24K"), (1_250_000, "1,250K")])
def test_the_size_of_the_context_is_short(tokens: int, text: str) -> None:
    assert in_thousands(tokens) == text


# --- gateways ---------------------------------------------------------------------------------------


def test_the_gateway_of_the_folder_is_used_and_conversations_resumed_and_exported(home: Path) -> None:
    with running_gateway(home) as gateway:
        with conversing(home, "chat", "--mode", "ask") as person:
            person.sees(f"Gateway at {gateway.url}")
            person.says("the first thing")
            person.sees("You said: the first thing")
            person.leaves()
        with conversing(home, "chat", "--continue") as person:
            person.sees("the first thing")
            person.says("/new")
            person.sees("A new conversation.")
            person.says("/copy")
            person.sees("Nothing was said")
            person.says("/resume")
            (id,) = re.findall(r"\b[0-9a-f]{8}\b", person.sees("Continue one with /resume"))
            person.says(f"/resume {id}")
            person.sees("You said: the first thing")
            person.says("standin: history")
            person.sees('"prompts": ["the first thing"]')
            person.says("/copy")
            person.sees("Copied the last answer")
            person.says("/export talk.md")
            person.sees("Wrote talk.md.")
            person.says("/export talk.md")
            person.sees("exists already")
            person.says("/export talk.html")
            person.sees("Wrote talk.html.")
            person.says("/permissions")
            person.sees("You have allowed nothing else.")
            person.says("/help")
            person.sees("Alt-Enter")
            person.leaves()
    assert "the first thing" in (home / "work" / "talk.md").read_text()
    assert "<html" in (home / "work" / "talk.html").read_text()
