"""`cursor-gateway conversations`, as a process of its own: by a gateway, and on the history's file alone."""

import json
import os
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cursor_gateway.cli.commands.conversations import ago
from cursor_gateway.demo import recordings
from cursor_gateway.keys import hash_key
from cursor_gateway.model.documents import (
    ChatResponse,
    ClarificationAnswer,
    ClarificationMetadata,
    ClarificationOption,
    ClarificationQuestion,
    CodeBlockMetadata,
    CodeReferenceMetadata,
    Document,
    ErrorMetadata,
    FileEditMetadata,
    Metadata,
    PlanMetadata,
    ResponseMetadata,
    TerminalCommandMetadata,
    TextMetadata,
    ThinkingMetadata,
    Usage,
    make_document,
)
from cursor_gateway.model.history import ConversationDetail, MessageEntry, RunEntry
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.reader import read_response
from cursor_gateway.render.export import WholeConversation, as_json, as_markdown, as_text, whole
from cursor_gateway.sources.processes import members
from cursor_gateway.sources.replay import recorded_prompt
from tests.agent.install import install
from tests.agent.records import records
from tests.cli.processes import TIMEOUT, finished, on_a_terminal, own_machine, read_until, started
from tests.gateways import RunningGateway, running_gateway
from tests.preloaded import start

EXPORTED = Path(__file__).parent / "exported"
DATA = Path(".local/share/cursor-gateway")
PROMPTS = ("Explain how the retries work", "Fix the failing tests", "Plan a search for the bookshelf")
TITLES = [PROMPTS[0], *PROMPTS[:0:-1]]  # the first one was gone on with


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"  # not that of the tests' gateways, so these are not verified
    own_machine(monkeypatch, home, verify_gateway="false", replay_speed="0")
    return home


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with conversations of the demo, the last prompt in the first of them."""
    data = tmp_path_factory.mktemp("made")
    settings = {"source": "replay", "data_dir": str(data), "replay_speed": "0"}
    environment = {f"CURSOR_GATEWAY_{name.upper()}": value for name, value in settings.items()}
    first = ""
    for prompt in PROMPTS:
        ended = finished("chat", "--direct", prompt, stdin=b"", HOME=str(data), **environment)
        assert ended.returncode == 0
        first = first or re.findall(r"conv_\w+", ended.stderr.decode())[0]
    again = ["chat", "--direct", "--conversation", first, "recording: question"]
    assert finished(*again, stdin=b"", HOME=str(data), **environment).returncode == 0
    return data


@pytest.fixture
def history(made: Path, home: Path) -> Path:
    """The same, in the home: tests may change it."""
    return Path(shutil.copytree(made, home / DATA))


@pytest.fixture(scope="module")
def gateway(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    data = Path(shutil.copytree(made, tmp_path_factory.mktemp("data") / "data"))
    with running_gateway(tmp_path_factory.mktemp("gateway"), settings={"data_dir": str(data)}) as gateway:
        yield gateway


def conversations(*arguments: str, **environment: str) -> tuple[int, str, str]:
    ended = finished("conversations", *arguments, stdin=b"", **environment)
    assert b"Traceback" not in ended.stderr
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def entries(*arguments: str, **environment: str) -> list[dict[str, Any]]:
    status, out, _ = conversations("--json", *arguments, **environment)
    assert status == 0
    found: list[dict[str, Any]] = json.loads(out)
    return found


def plain(sent: str) -> list[str]:
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", sent).splitlines()]


def typed(answer: str, *arguments: str) -> int:
    """With somebody at the keyboard."""
    ours, theirs = os.openpty()
    with start(arguments, os.environ, Path.cwd(), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        read_until(ours, b"[y/N]")
        os.write(ours, answer.encode())
        status = process.wait(TIMEOUT)
    os.close(ours)
    return status


# --- lists ------------------------------------------------------------------------------------------


def test_in_a_pipe_it_is_one_a_line(history: Path) -> None:
    status, out, error = conversations()
    assert (status, error) == (0, f"History in {history}\n")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[5] for row in rows] == TITLES
    for id, time, *state, _ in rows:
        assert re.fullmatch(r"conv_[0-9a-f]{32}", id)
        assert datetime.fromisoformat(time).tzinfo is UTC
        assert state == ["ended", "agent", "demo"]


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_it_is_a_table(width: int, history: Path) -> None:
    ids = [entry["id"] for entry in entries()]
    status, sent, _ = on_a_terminal("conversations", COLUMNS=str(width))
    assert status == 0
    head, *rows = plain(sent)
    assert head.split() == ["id", "when", "model", "title"]
    expected = ids if width == 120 else [id.removeprefix("conv_")[:8] for id in ids]
    assert [row.split()[0] for row in rows] == expected
    assert [title for row, title in zip(rows, TITLES, strict=True) if not row.endswith(title)] == []
    assert max(map(len, rows)) <= width


def test_a_long_title_is_cut_and_not_the_id(home: Path) -> None:
    install(home / "bin", knobs={})
    finished("chat", "--mode", "ask", "word " * 40)
    (row,) = plain(on_a_terminal("conversations", COLUMNS="80")[1])[1:]
    assert row.startswith(entries()[0]["id"].removeprefix("conv_")[:8])
    assert "ask · auto" in row
    assert row.endswith("…")
    assert len(row) <= 80


def test_how_many(history: Path) -> None:
    assert [entry["title"] for entry in entries("--limit", "2")] == TITLES[:2]
    _, _, error = on_a_terminal("conversations", "--limit", "2")
    assert "More results: cursor-gateway conversations --limit 10" in error
    assert "More results" not in on_a_terminal("conversations", "--limit", "3")[2]
    assert conversations("--limit", "0")[0] == 2


def test_json_is_what_the_api_says(history: Path) -> None:
    first, *_ = entries()
    fields = {"id", "title", "created", "updated", "workspace", "mode", "model", "isRunning", "pinned", "client"}
    assert first.keys() == fields
    assert on_a_terminal("conversations", "--json")[1].startswith("[\n  {\n")


def test_words_are_found_where_they_were_said(history: Path) -> None:
    assert [entry["title"] for entry in entries("search", "MEDIAN")] == [PROMPTS[1]]
    assert [entry["title"] for entry in entries("search", "client/retry.py")] == [PROMPTS[0]]
    assert [entry["title"] for entry in entries("search", "pytest", "medi")] == [PROMPTS[1]]
    status, out, _ = conversations("search", "median")
    fields = out.rstrip("\n").split("\t")
    assert (status, len(fields)) == (0, 7)
    assert "median" in fields[6]


@pytest.mark.parametrize("width", [80, 120])
def test_what_was_found_stands_out_below_its_title(width: int, history: Path) -> None:
    status, sent, _ = on_a_terminal("conversations", "search", "failing", "median", COLUMNS=str(width))
    assert status == 0
    head, row, *snippet = plain(sent)
    assert head.split() == (["id", "when", "title"] if width == 80 else ["id", "when", "model", "title"])
    assert row.endswith(PROMPTS[1])
    assert snippet
    assert {len(line) - len(line.lstrip()) for line in snippet} == {row.index(PROMPTS[1])}
    assert re.search(r"\x1b\[[0-9;]*33m(?:\x1b\[[0-9;]*m)*failing", sent)


def test_nothing_found_is_reported(history: Path) -> None:
    for words in (["zebra"], ["zebra", "crossing"], ["?!"]):
        status, out, error = conversations("search", *words)
        assert (status, out) == (1, "")
        assert "No conversation contains " in error
    assert conversations("search", "--json", "zebra")[:2] == (1, "[]\n")
    assert conversations("search")[0] == 2


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-100, "just now"),
        (0, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86_399, "23 h ago"),
        (86_400, "1 day ago"),
        (7 * 86_400 - 1, "6 days ago"),
        (7 * 86_400, "2026-11-08"),
    ],
)
def test_times_are_for_people(seconds: int, expected: str) -> None:
    now = datetime(2026, 11, 15, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert ago(now.astimezone(UTC) - timedelta(seconds=seconds), now) == expected


# --- one of them ------------------------------------------------------------------------------------


def test_a_conversation_is_shown_with_its_prompts_and_documents(history: Path) -> None:
    status, out, _ = conversations("show", "last")
    assert status == 0
    title, facts, empty, prompt, *_ = lines = out.splitlines()
    assert (title, empty, prompt) == (PROMPTS[0], "", f"▌ {PROMPTS[0]}")
    assert facts.startswith(entries()[0]["id"])
    assert "▌ recording: question" in lines
    assert "\n✓ read_file client/retry.py  " in out
    assert "? Before I write anything:" in lines
    assert [line.split(" · ")[0] for line in lines if line.startswith("✓ completed")] == [
        "✓ completed in 10.3 s",
        "✓ completed in 6.4 s",
    ]
    assert "\n\n\n" not in out
    shown = plain(on_a_terminal("conversations", "show", "last", COLUMNS="80")[1])
    assert [line for line in shown if line.startswith("▌")] == [f"▌ {PROMPTS[0]}", "▌ recording: question"]


def test_an_id_may_be_cut_short(history: Path) -> None:
    id = entries("--limit", "2")[1]["id"]
    for name in (id, id[:12], id[:20], id.removeprefix("conv_")[:8]):
        status, out, _ = conversations("show", name, "--json")
        assert (status, json.loads(out)["id"]) == (0, id)


@pytest.mark.parametrize("part", ["show", "export", "delete"])
@pytest.mark.quick_cases(1)
def test_an_id_that_means_none_or_several_is_refused(part: str, history: Path, gateway: RunningGateway) -> None:
    more = ["--yes"] if part == "delete" else []
    for where in ([], ["--url", gateway.url]):
        for name in ("zzz", f"conv_{'0' * 32}", "", "a/../b", os.fsdecode(b"caf\xe9")):
            status, out, error = conversations(part, name, *more, *where)
            assert (status, out) == (2, "")
            assert "cursor-gateway: Unknown conversation '" in error
        status, out, error = conversations(part, "conv_", *more, *where)
        assert (status, out) == (2, "")
        assert "'conv_' matches several conversations: conv_" in error
        assert len(entries(*where)) >= 3


def test_json_is_everything(history: Path) -> None:
    status, out, _ = conversations("show", "last", "--json")
    assert status == 0
    conversation = msgspec.json.decode(out, type=WholeConversation)
    assert [message.role for message in conversation.messages] == ["user", "assistant"] * 2
    assert [run.id for run in conversation.runs] == [response.id for response in conversation.responses]
    assert conversations("export", "last", "--to", "json")[1] == as_json(conversation)


def test_the_gateway_and_the_file_say_the_same(made: Path, gateway: RunningGateway) -> None:
    known = gateway.url, {"CURSOR_GATEWAY_DATA_DIR": str(made)}
    for arguments in ([], ["search", "retry"], ["show", "last", "--json"], ["export", entries(**known[1])[1]["id"]]):
        result = conversations(*arguments, "--url", known[0])
        assert result[:2] == conversations(*arguments, **known[1])[:2]
        assert result[2] == f"History of the gateway at {gateway.url}\n"
    port = {"CURSOR_GATEWAY_PORT": gateway.url.rpartition(":")[2]}
    assert entries(**port) == entries("--url", gateway.url) == entries(CURSOR_GATEWAY_URL=gateway.url)
    assert conversations("--direct", **port)[1] == ""
    assert conversations("--direct", "--url", gateway.url)[0] == 2


def test_what_stands_before_the_part_is_meant_for_it(history: Path, gateway: RunningGateway) -> None:
    assert conversations("--json", "show", "last")[1] == conversations("show", "last", "--json")[1]
    assert conversations("--limit", "1", "search", "the")[1].count("\n") == 1
    assert "gateway at" in conversations("--url", gateway.url, "show", "last")[2]
    assert conversations("--direct", "search", "--url", gateway.url, "the")[0] == 2


# --- exporting --------------------------------------------------------------------------------------


def conversation_of(*responses: ChatResponse, prompts: list[str]) -> WholeConversation:
    time = "2026-01-02T03:04:05.678Z"
    runs = [
        RunEntry(
            id=response.id,
            state="completed" if response.status == "completed" else "error",
            model=response.model,
            mode=response.mode,
            created=response.created,
            first_event_ms=1,
            duration_ms=2,
            usage=response.usage,
            error_code=None,
        )
        for response in responses
    ]
    messages = []
    for response, prompt in zip(responses, prompts, strict=True):
        messages.append(MessageEntry(role="user", text=prompt, chat_id=response.id, created=time))
        messages.append(MessageEntry(role="assistant", text="…", chat_id=response.id, created=time))
    detail = ConversationDetail(
        id="conv_1",
        title=prompts[0],
        created=time,
        updated=time,
        workspace="/home/dev/project",
        mode="agent",
        model="demo",
        is_running=False,
        messages=messages,
        runs=runs,
    )
    return whole(detail, responses)


def recorded(name: str) -> WholeConversation:
    data = recordings()[name]
    response = read_response([data], RunInfo(id="chat_1", created="2026-01-02T03:04:05Z", conversation_id="conv_1"))
    return conversation_of(response, prompts=[recorded_prompt(data)])


@pytest.mark.parametrize("name", list(recordings()))
def test_exports_of_the_demo_are_exact(name: str) -> None:
    """To write them anew: python -m tests.cli.test_conversations"""
    assert as_markdown(recorded(name)) == (EXPORTED / f"{name}.md").read_text(encoding="utf-8")
    assert as_text(recorded(name)) == (EXPORTED / f"{name}.txt").read_text(encoding="utf-8")


def test_what_somebody_decided_is_no_prompt() -> None:
    conversation = recorded("hello")
    (prompt, *rest) = conversation.messages
    told = msgspec.structs.replace(prompt, text="You may run this once: …", note="You allowed `npm test` once.")
    conversation = msgspec.structs.replace(conversation, messages=[told, *rest])
    assert "\n\nYou allowed \\`npm test\\` once.\n\n" in as_markdown(conversation)
    assert as_text(conversation).startswith("You allowed `npm test` once.\n\n")
    assert "You may run this" not in as_markdown(conversation) + as_text(conversation)


def test_a_file_is_written_in_the_form_of_its_name(history: Path, home: Path) -> None:
    conversation = msgspec.json.decode(conversations("show", "last", "--json")[1], type=WholeConversation)
    assert conversations("export", "last")[1] == as_markdown(conversation)
    forms = {"talk.md": as_markdown, "talk": as_markdown, "talk.json": as_json, "talk.TXT": as_text}
    for name, form in forms.items():
        status, out, error = conversations("export", "last", "-o", name)
        assert (status, out) == (0, "")
        assert error.endswith(f"Written to {name}\n")
        assert (home / "work" / name).read_text(encoding="utf-8") == form(conversation)
    conversations("export", "last", "--to", "text", "-o", "talk.md")
    assert (home / "work/talk.md").read_text(encoding="utf-8") == as_text(conversation)
    status, out, error = conversations("export", "last", "-o", "nowhere/talk.md")
    assert (status, out) == (2, "")
    assert "'nowhere/talk.md' cannot be written: No such file or directory; use another path." in error


def answered(*documents: Document, **more: Any) -> ChatResponse:
    fields = {
        "id": "chat_1",
        "conversation_id": "conv_1",
        "model": "a_model",
        "mode": "ask",
        "created": "2026-01-02T03:04:05Z",
        "status": "completed",
        "usage": Usage(prompt_tokens=1000, completion_tokens=2, total_tokens=1002),
        "metadata": ResponseMetadata(duration_ms=0, tool_call_count=0, turn_count=1),
        **more,
    }
    return ChatResponse(documents=list(documents), **fields)


def text_document(content: str) -> Document:
    return make_document("doc_001", 1, content, TextMetadata())


def markdown_of(*documents: Document, **more: Any) -> str:
    exported = as_markdown(conversation_of(answered(*documents, **more), prompts=["Hi"]))
    head, _, body = exported.partition("out*\n\n")
    assert head.startswith(
        "# Hi\n\n`conv_1` · 2026-01-02 03:04 UTC · `/home/dev/project`\n\n## You\n\n> Hi\n\n## Agent\n"
    )
    return body.removesuffix("\n")


def test_what_the_agent_leaves_open_does_not_take_in_the_rest() -> None:
    assert markdown_of(text_document("Look:\n\n````\ncode\n```"), text_document("B")) == (
        "Look:\n\n````\ncode\n```\n````\n\nB"
    )
    assert markdown_of(text_document("- a\n\n  ~~~\n  x"), text_document("B")) == "- a\n\n  ~~~\n  x\n\nB"
    assert markdown_of(text_document("```\nwhole\n```")) == "```\nwhole\n```"


def test_fences_are_longer_than_what_they_hold() -> None:
    code = CodeBlockMetadata(language="markdown", purpose="new_code")
    document = make_document("doc_001", 1, "````\nx\n````", code)
    assert markdown_of(document) == "`````markdown\n````\nx\n````\n`````"


def test_prompts_stay_within_their_quotes() -> None:
    conversation = conversation_of(answered(), prompts=["# Not a heading\n\n```\nnot *closed*\x1b[2J"])
    exported = as_markdown(conversation)
    assert exported.startswith("# \\# Not a heading \\`\\`\\` not \\*closed\\*\n")
    assert "\n> # Not a heading\n>\n> ```\n> not *closed*\n" in exported


def test_every_kind_of_ending_is_shown() -> None:
    edit: dict[str, Any] = {"file_path": "a`b.py", "language": "python"}
    reference = CodeReferenceMetadata(file_path="a.py", start_line=3, end_line=3, language="python")
    command: dict[str, Any] = {"command": "make\nall", "output": "", "duration_ms": 0, "permissions": []}
    questions = [
        ClarificationQuestion(id="q", text="Which `one`?", options=[ClarificationOption(id="o", label="List<int>")])
    ]
    answers = [ClarificationAnswer(question_id="q", selected_option_ids=["o"], text="that one")]
    long = "\n".join(f"line {number}" for number in range(30))
    rows: list[tuple[str | None, Metadata, str]] = [
        (None, FileEditMetadata(operation="delete", **edit, state="rejected"), "**Deleted** `` a`b.py `` *(rejected)*"),
        (None, FileEditMetadata(operation="rename", **edit, old_path="c"), "**Renamed** `c` to `` a`b.py ``"),
        ("x\n", FileEditMetadata(operation="edit", **edit), "**Edited** `` a`b.py ``\n\n```python\nx\n```"),
        ("x", reference, "`a.py`, line 3:\n\n```python\nx\n```"),
        (
            None,
            TerminalCommandMetadata(exit_code=-1, **command),
            "```console\n$ make\n> all\n```\n\n*ended without an exit status*",
        ),
        (
            None,
            TerminalCommandMetadata(exit_code=-1, state="timed_out", reason="Too slow.", **command),
            "```console\n$ make\n> all\n```\n\n*(timed out: Too slow.)*",
        ),
        ("Hm.", ThinkingMetadata(), "> *Thinking*\n>\n> Hm."),
        ("", PlanMetadata(title="", overview="", todos=[]), "**Plan: untitled**"),
        (
            None,
            ClarificationMetadata(questions=questions, answers=answers),
            "**The agent asks**\n\n1. Which `one`?\n   - [x] List\\<int>\n   - that one",
        ),
        (
            "It broke.",
            ErrorMetadata(error_code="BROKEN", source="agent", details=long),
            "> `BROKEN`: It broke.\n\n```\n" + long.partition("line 9\n")[2] + "\n```",
        ),
    ]
    for content, metadata, expected in rows:
        assert markdown_of(make_document("d", 1, content, metadata)) == expected
    assert "*a\\_model · ask · failed · 1,000 tokens in, 2 out*" in as_markdown(
        conversation_of(answered(status="error"), prompts=["Hi"])
    )


# --- deleting ---------------------------------------------------------------------------------------


def test_deleting_asks(history: Path) -> None:
    ids = [entry["id"] for entry in entries()]
    assert typed("n\n", "conversations", "delete", ids[0]) == 1
    assert typed("\n", "conversations", "delete", "last") == 1
    assert [entry["id"] for entry in entries()] == ids
    assert (history / "conversations" / ids[0]).is_dir()
    assert typed("y\n", "conversations", "delete", "last") == 0
    assert [entry["id"] for entry in entries()] == ids[1:]
    assert not (history / "conversations" / ids[0]).exists()
    assert (history / "conversations" / ids[1]).is_dir()


def test_without_a_terminal_it_needs_an_explicit_yes(history: Path) -> None:
    ids = [entry["id"] for entry in entries()]
    status, out, error = conversations("delete", "last")
    assert (status, out) == (2, "")
    assert "there is no terminal; add --yes." in error
    status, _, error = conversations("delete", "--yes", ids[1], "zzz")
    assert status == 2
    assert [entry["id"] for entry in entries()] == ids  # all or nothing
    status, out, error = conversations("delete", "--yes", ids[1], ids[1][:12], ids[0])
    assert (status, out) == (0, "")
    assert error.endswith("Deleted 2 conversations.\n")
    assert [entry["id"] for entry in entries()] == ids[2:]
    assert conversations("show", ids[0])[0] == 2
    with closing(sqlite3.connect(history / "history.db")) as database:
        assert database.execute("SELECT count(*) FROM conversations").fetchone() == (1,)  # not only out of sight


def test_a_gateway_deletes_and_stops_what_runs(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path / "gateway") as gateway,
        started("chat", "--url", gateway.url, "--text", "standin: hang-mid") as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        read_until(process.stdout.fileno(), b"more.")
        (entry,) = entries("--url", gateway.url)
        assert entry["isRunning"]
        assert "\trunning\t" in conversations("--url", gateway.url)[1]
        shown = conversations("--url", gateway.url, "show", "last")[1]
        assert shown.endswith("I was about to say more.\n\n● still running\n")
        assert "· still running ·" in conversations("--url", gateway.url, "export", "last")[1]
        (turn,) = [record for record in records(gateway.agent_log) if "hang-mid" in (record["prompt"] or "")]
        assert conversations("--url", gateway.url, "delete", "last", "--yes")[0] == 0
        assert process.wait(TIMEOUT) == 1
        assert members(turn["pgid"]) == []
        assert entries("--url", gateway.url) == []
        assert conversations("--url", gateway.url, "delete", entry["id"], "--yes")[0] == 2


# --- what goes on, and what does not ----------------------------------------------------------------


def test_what_another_process_runs_is_left_alone(home: Path) -> None:
    install(home / "bin", knobs={})
    with started("chat", "--text", "standin: hang-mid") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        read_until(process.stdout.fileno(), b"more.")
        (entry,) = entries()
        assert entry["isRunning"]
        assert " running " in plain(on_a_terminal("conversations")[1])[1]
        status, _, error = conversations("delete", "last", "--yes")
        assert status == 2
        assert "has an active run in another process" in error
        assert (home / DATA / "conversations" / entry["id"]).is_dir()
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
    assert not entries()[0]["isRunning"]
    assert "CANCELLED" in conversations("show", "last")[1]
    assert conversations("delete", "last", "--yes")[0] == 0


def test_what_a_dead_process_ran_is_not_running(home: Path) -> None:
    install(home / "bin", knobs={"log": str(home / "agent.log")})
    with started("chat", "--text", "standin: hang-mid") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        read_until(process.stdout.fileno(), b"more.")
        process.kill()
    assert not entries()[0]["isRunning"]
    out = conversations("show", "last")[1]
    assert "I was about to say more." in out
    assert "The gateway was killed during this run" in out
    finished("models")  # ends the agent that was left behind
    (turn,) = [record for record in records(home / "agent.log") if "hang-mid" in (record["prompt"] or "")]
    assert members(turn["pgid"]) == []


# --- owners -----------------------------------------------------------------------------------------


def test_everybody_sees_their_own(tmp_path: Path, home: Path) -> None:
    keys = ",".join(f"{name}={hash_key(f'cgw_{name}')}" for name in ("ann", "ben"))
    data = {"CURSOR_GATEWAY_DATA_DIR": str(tmp_path / "gateway/data")}
    with running_gateway(tmp_path / "gateway", settings={"api_keys": keys}) as gateway:
        for name in ("ann", "ben"):
            assert finished("chat", "--url", gateway.url, f"I am {name}", CURSOR_GATEWAY_API_KEY=f"cgw_{name}")
        (anns,) = entries("--url", gateway.url, CURSOR_GATEWAY_API_KEY="cgw_ann")
        assert anns["title"] == "I am ann"
        for arguments in (["show", anns["id"]], ["show", anns["id"][:12]], ["delete", "--yes", anns["id"]]):
            status, out, error = conversations("--url", gateway.url, *arguments, CURSOR_GATEWAY_API_KEY="cgw_ben")
            assert (status, out) == (2, "")
            assert "Unknown conversation" in error
        status, out, error = conversations("--url", gateway.url)
        assert (status, out) == (2, "")
        assert "API key is required" in error
    assert entries(**data) == []
    assert finished("chat", "--direct", "I am here", stdin=b"", **data).returncode == 0
    assert [entry["title"] for entry in entries(**data)] == ["I am here"]
    mine = {**data, "CURSOR_GATEWAY_API_KEYS": keys, "CURSOR_GATEWAY_API_KEY": "cgw_ann"}
    assert entries(**mine) == [anns]


# --- troubles ---------------------------------------------------------------------------------------


def test_where_nothing_was_said_nothing_is_made(home: Path) -> None:
    status, out, error = conversations()
    assert (status, out) == (0, "")
    assert error == (f'No history in {home / DATA}\nNo conversations yet; start one with `cursor-gateway chat "…"`.\n')
    assert entries() == []
    assert conversations("show", "last")[::2] == (
        2,
        f"No history in {home / DATA}\ncursor-gateway: no conversations yet; start one with `cursor-gateway chat`.\n",
    )
    assert conversations("search", "x")[0] == 1
    assert "the setting `history` is off" in conversations(CURSOR_GATEWAY_HISTORY="false")[2]
    assert not (home / DATA).exists()


def test_a_history_that_cannot_be_read_is_reported(history: Path) -> None:
    file = history / "history.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA user_version = 99")
        database.execute("CREATE TABLE newer (id INTEGER)")  # without it, the number is taken for damage
    status, out, error = conversations()
    assert (status, out) == (2, "")
    assert "was written by a newer cursor-gateway (format 99" in error
    damaged = b"no database at all" * 1000
    file.write_bytes(damaged)
    for arguments in ([], ["search", "x"], ["show", "last"], ["delete", "last", "--yes"]):
        status, out, error = conversations(*arguments)
        assert (status, out) == (2, "")
        assert error.splitlines()[-1].startswith("cursor-gateway: The history is damaged;")
    assert file.read_bytes() == damaged  # whoever only looks sets nothing aside


def test_a_gateway_that_does_not_answer_is_reported() -> None:
    status, out, error = conversations("--url", "http://127.0.0.1:1", "show", "last")
    assert (status, out) == (2, "")
    assert "cannot be reached: Connection refused" in error


def test_nothing_that_was_said_can_draw_on_the_terminal(home: Path) -> None:
    install(home / "bin", knobs={})
    finished("chat", "red\x1b[31m \x9b2J alert\x07")
    for arguments in ([], ["search", "alert"], ["show", "last"], ["export", "last"]):
        assert not {"\x1b", "\x9b", "\x07"} & set(conversations(*arguments)[1])
    said = conversations("export", "last", "--to", "text")[1]
    assert "red\x1b[31m \x9b2J alert\x07" in said  # a pipe gets it as it was said
    assert said == on_a_terminal("conversations", "export", "last", "--to", "text", "--raw")[1]
    exports = [["export", "last", "--to", form] for form in ("text", "json", "markdown")]
    for arguments in ([], ["search", "alert"], ["show", "last"], ["show", "last", "--json"], ["--json"], *exports):
        sent = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal("conversations", *arguments, NO_COLOR="1")[1])
        assert not {"\x1b", "\x9b", "\x07"} & set(sent)


if __name__ == "__main__":  # review the difference
    EXPORTED.mkdir(exist_ok=True)
    for recording in recordings():
        (EXPORTED / f"{recording}.md").write_text(as_markdown(recorded(recording)), encoding="utf-8")
        (EXPORTED / f"{recording}.txt").write_text(as_text(recorded(recording)), encoding="utf-8")
