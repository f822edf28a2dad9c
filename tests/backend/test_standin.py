"""The stand-in for the SDK's bridge and Cursor's own runtime: the same program, and what our source makes of each.

A program is played by the stand-in, and by the mock backend with the unmodified runtime. The events must be the same,
and so must the stream that they were decoded from, except for ids and times.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from cursor_gateway.model.agent_events import AgentEvent, Plan, Question, merge_deltas
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.sources.base import OfferedTools, Turn
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.process import tapped
from cursor_gateway.sources.sdk import source as sdk_source
from cursor_gateway.sources.sdk.bridge import BridgeOptions
from cursor_gateway.sources.sdk.decoder import plain
from cursor_gateway.sources.sdk.source import CursorSdkSource, SdkOptions
from tests.agent.bridge_install import install_bridge
from tests.backend.conftest import PASSED_ON, program
from tests.backend.server import Backend

Json: TypeAlias = dict[str, Any]
_FREE = frozenset(
    {
        "call_id",
        "model_call",
        "model_call_id",
        "duration_ms",
        "executionTime",
        "session_id",
        "agentId",
        "thinking_duration_ms",
    }
)
_UNREAD = ("unknown", "done")  # keep-alives, and what follows the result, where reading may stop
_NUMBERED = ("fullSubtreeExtensionCounts", "numFiles", "childrenWereProcessed")  # more about folders than is used


def native(tool: str, **args: str) -> Json:
    return {"native": tool, "args": args}


PROGRAMS: dict[str, list[Json]] = {
    "text": [{"say": "Hello *there*, it is 5 o'clock.\n"}],
    "a command that is denied": [native("shell", command="echo out"), {"say": "$1"}],
    "thinking": [{"think": "Let me see what this is about."}, {"say": "An answer."}],
    "a command": [{"say": "Running."}, native("shell", command="echo out"), {"say": "It said $1"}],
    "a command that fails": [native("shell", command="echo no >&2; exit 3"), {"say": "Failed."}],
    "a file that is read": [native("read", path="{w}/notes.txt"), {"say": "$1"}],
    "a file that is missing": [native("read", path="{w}/none.txt"), {"say": "None."}],
    "a new file": [native("edit", path="{w}/new.txt", streamContent="one\ntwo\n"), {"say": "Made."}],
    "a changed file": [native("edit", path="{w}/notes.txt", streamContent="another note\n"), {"say": "Changed."}],
    "a deleted file": [native("delete", path="{w}/notes.txt"), {"say": "Gone."}],
    "a deleted file that is missing": [native("delete", path="{w}/none.txt"), {"say": "Gone."}],
    "a search": [native("grep", pattern="note", path="{w}", outputMode="content"), {"say": "Found."}],
    "a search for names": [native("glob", targetDirectory="{w}", globPattern="*.txt"), {"say": "Found."}],
    "a listing": [native("ls", path="{w}"), {"say": "Listed."}],
    "a command that is allowed": [native("shell", command="echo out"), {"say": "It said $1"}],
    "a command that nobody decides on": [native("shell", command="echo out"), {"say": "$1"}],
    "a file of the gateway": [native("edit", path="{h}/data/x", streamContent="x\n"), {"say": "$1"}],
    "a file of the gateway that is deleted": [native("delete", path="{h}/data/x"), {"say": "Tried."}],
    "a question": [{"say": "Before."}, {"call": "ask_user", "args": {"question": "Why?"}}, {"say": "It says: $1"}],
    "several at once": [
        {"parallel": [native("shell", command="sleep 0.5; echo late"), native("read", path="{w}/notes.txt")]},
        {"say": "$1$2"},
    ],
    "to-dos": [{"todos": [["Read", "COMPLETED"], ["Write", "IN_PROGRESS"], ["Check", "PENDING"]]}, {"say": "Noted."}],
    "a plan": [{"plan": "# A plan\n\n1. Look\n"}, {"say": "Planned."}],
    "a question of Cursor's own": [{"say": "Hm."}, {"question": "Which one?"}, {"say": " Then A."}],
    "a web search": [{"web": "herons"}, {"say": "Searched."}],
    "a web page": [native("webFetch", url="https://example.com"), {"say": "Read."}],
    "a sub-agent": [{"native": "task", "args": {"steps": [{"say": "Inner."}]}}, {"say": "Outer."}],
    "figures": [
        {"say": "Counted."},
        {
            "usage": {
                "input_tokens": 5,
                "output_tokens": 7,
                "cache_read_tokens": 11,
                "cache_write_tokens": 3,
                "reasoning_tokens": 2,
            }
        },
    ],
    "a server's notice": [{"notice": "Slow today."}, {"say": " Hello."}],
    "a summary": [{"summary": "So far."}, {"say": "Going on."}],
    "a failure with a code": [{"say": "Hm."}, {"fail": "unauthenticated", "message": "Not you"}],
    "a failure at once": [{"fail": "unauthenticated", "message": "Not you"}],
    "an explained failure": [
        {"say": "Hm."},
        {"fail": "unknown", "title": "Something", "detail": "happened.", "retryable": False},
    ],
    "a refused account": [{"fail": "permission_denied", "title": "Upgrade your plan to continue", "retryable": False}],
    "a used-up account": [
        {"fail": "resource_exhausted", "title": "You've hit your usage limit", "detail": "Wait.", "retryable": False}
    ],
    "a cut stream": [{"say": "Some text, "}, {"cut": True}, {"say": "Some text, then the rest."}],
    "a cut stream after a checkpoint": [
        {"say": "Some text, "},
        {"checkpoint": True},
        {"cut": True},
        {"say": "then the rest."},
    ],
    "a caller's tool": [{"call": "get_weather", "args": {"city": "Oslo"}}, {"say": "It says: $1"}],
}


DECISIONS: dict[str, Permission | None] = {
    "a command that is allowed": Permission("once"),
    "a command that is denied": Permission("deny", "Not now."),
    "a command that nobody decides on": None,
}


class Weather:
    tools = [Tool(name="get_weather", description="The weather", parameters={"type": "object"})]

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(text=f"sun in {arguments['city']}")


class Somebody:
    """Answers whatever is asked, and decides as the program's name says."""

    def __init__(self, decision: Permission | None) -> None:
        self._decision = decision

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer]:
        return [ClarificationAnswer(question_id=question.questions[0].id, selected_option_ids=[], text="So.")]

    async def decide(self, call_id: str, plan: Plan) -> bool:
        raise NotImplementedError

    async def permit(self, call_id: str, question: Question) -> Permission | None:
        return self._decision


class Player:
    """One bridge for all programs."""

    def __init__(self, home: Path, environ: dict[str, str], command: list[str]) -> None:
        for folder in ("work", "data/conversations/c1", "tmp"):
            (home / folder).mkdir(parents=True)
        self._home = home
        self._ledger = Ledger(home / "instances")
        self._ledger.open()
        known = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "SHELL": "/bin/bash",
            **environ,
        }
        bridge = BridgeOptions(command=command, environment=PASSED_ON.split(","), grace_seconds=1)
        self._source = CursorSdkSource(
            SdkOptions(folder=home / "data" / "sdk", bridge=bridge, permissions="ask"), known, self._ledger, lambda: 0.0
        )
        self._runner = asyncio.Runner()

    def played(self, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Json], list[str]]:
        """The events, and the stream that they come from."""
        return self._runner.run(asyncio.wait_for(self._played(PROGRAMS[name], name, monkeypatch), 120))

    async def _played(
        self, steps: list[Json], name: str, monkeypatch: pytest.MonkeyPatch
    ) -> tuple[list[Json], list[str]]:
        work = self._home / "work"
        for file in work.iterdir():
            file.unlink()
        (work / "notes.txt").write_text("a note\n")
        stream: list[str] = []

        def noted(event: Any) -> Any:
            body = plain(event)
            stream.append(f"{event.kind} {body.get('type', '')} {body.get('status', '')}".strip())
            return body

        with monkeypatch.context() as patched:
            patched.setattr(sdk_source, "plain", noted)
            called = [step["call"] for step in steps if "call" in step]
            offers = OfferedTools(server="caller", url="", runner=Weather()) if "get_weather" in called else None
            asks = name in DECISIONS or "ask_user" in called
            person = Somebody(DECISIONS.get(name)) if asks else None
            turn = Turn(
                run_id="chat_1",
                prompt=program(
                    *json.loads(json.dumps(steps).replace("{w}", str(work)).replace("{h}", str(self._home)))
                ),
                model="auto",
                workspace=str(work),
                folder=str(self._home / "data/conversations/c1"),
                offered=offers,
                person=person,
                approver=person,
                allow=() if name in DECISIONS else ["Shell(*)"],
            )
            async with aclosing(self._source.events(turn)) as batches:
                events: list[AgentEvent] = [event async for batch in batches for event in batch]
        told = [self._comparable(event) for event in merge_deltas(events)]
        if not any("usage" in step for step in steps):  # guessed from the length of the prompt, which has paths
            told = [{name: value for name, value in event.items() if name != "usage"} for event in told]
        return told, [one for one in stream if one not in _UNREAD]

    def _comparable(self, event: AgentEvent) -> Json:
        told = json.dumps({"event": type(event).__name__, **_free(msgspec.to_builtins(event))}, sort_keys=True)
        result: Json = json.loads(
            re.sub("permission_[0-9a-f]{32}", "permission", told.replace(str(self._home), "HOME"))
        )
        return result

    def close(self) -> None:
        self._runner.run(self._source.close())
        self._runner.close()
        self._ledger.close()


def _free(value: Any) -> Any:
    match value:
        case dict():
            return {name: _free(below) for name, below in value.items() if name not in (*_FREE, *_NUMBERED)}
        case list():
            return [_free(below) for below in value]
        case _:
            return value


@pytest.fixture(scope="module")
def players(tmp_path_factory: pytest.TempPathFactory, shared_backend: Backend) -> Iterator[list[Player]]:
    real, own = tmp_path_factory.mktemp("real"), tmp_path_factory.mktemp("own")
    made = [
        Player(real, shared_backend.environment, []),
        Player(own, {"CURSOR_API_KEY": "key"}, install_bridge(own / "bridge")),
    ]
    yield made
    for player in made:
        player.close()


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_are_the_same(players: list[Player], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in and the runtime give the same events, from the same stream."""
    (real, real_stream), (own, own_stream) = (player.played(name, monkeypatch) for player in players)
    assert own == real
    assert _runs(own_stream) == _runs(real_stream)


def _runs(stream: list[str]) -> list[str]:
    """Deltas of text in a row are one: how a text is cut is the model's choice."""
    joined = "\n".join(stream)
    for kind, message in (("text-delta", "assistant"), ("thinking-delta", "thinking")):
        one = rf"interaction_update {kind}\nsdk_message {message}(?:\ninteraction_update token-delta)?"
        joined = re.sub(rf"{one}(?:\n{one})*", f"{kind}s", joined)
    return joined.split("\n")


def test_the_bridge_drops_the_cost_of_a_turn(players: list[Player], monkeypatch: pytest.MonkeyPatch) -> None:
    """Cursor's servers send it, and the gateway cannot report it. If this fails, a new version passes it on: then it is
    better than a table of prices."""
    usage = {"input_tokens": 5, "output_tokens": 7, "estimated_cost": {"raw_cost_cents": 4.5, "charged_cents": 4.5}}
    monkeypatch.setitem(PROGRAMS, "a cost", [{"usage": usage}, {"say": "Hi."}])
    sent: list[bytes] = []
    with tapped(lambda arguments: sent.append):
        players[0].played("a cost", monkeypatch)
    ends = [line for line in sent if b"inputTokens" in line]
    assert ends
    assert b"cost" not in b"".join(ends).lower()
