"""Answers of Cursor's own runtime, through the whole gateway."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cursor_gateway.wire.sse import SseDecoder, SseEvent
from tests.backend.conftest import program
from tests.backend.server import Backend
from tests.gateways import RunningGateway
from tests.server.conftest import WAYS, Dialect, ask, at_once, chat, read_reply, text_of

SAID = "Hello *there*,\n\nthis is a text with `code` and an emoji: 😀."


@pytest.mark.parametrize(("dialect", "stream"), WAYS)
def test_text(client: httpx2.Client, dialect: Dialect, stream: bool) -> None:
    """A text arrives byte for byte, in each dialect, streamed and whole."""
    reply = read_reply(ask(client, dialect, program({"say": SAID}), stream=stream), dialect)
    assert (reply.status, reply.text, reply.code) == (200, SAID, "")


def test_thinking(client: httpx2.Client) -> None:
    """Thinking is a document of its own."""
    steps = program({"think": "What is asked? An answer."}, {"say": "An answer."})
    documents = chat(client, steps, include=["thinking"])["documents"]
    assert [(one["type"], one["content"]) for one in documents] == [
        ("thinking", "What is asked? An answer."),
        ("text", "An answer."),
    ]


def tools(workspace: Path) -> list[dict[str, Any]]:
    def native(tool: str, **args: str) -> dict[str, Any]:
        return {"native": tool, "args": args}

    return [
        native("shell", command="echo out; echo err >&2"),
        native("shell", command="exit 3"),
        native("read", path=f"{workspace}/notes.txt"),
        native("edit", path=f"{workspace}/new.txt", streamContent="one\ntwo\n"),
        native("edit", path=f"{workspace}/new.txt", streamContent="one\nzwei\n"),
        native("glob", targetDirectory=str(workspace), globPattern="*.txt"),
        native("ls", path=str(workspace)),
        native("delete", path=f"{workspace}/new.txt"),
    ]


def test_tools(client: httpx2.Client, gateway: RunningGateway) -> None:
    """Commands, files and searches are really executed, and each is a document."""
    workspace = gateway.workspace / "tools"
    workspace.mkdir()
    (workspace / "notes.txt").write_text("a note\n")
    reply = chat(client, program(*tools(workspace), {"say": "Done."}), workspace=str(workspace))
    shell, failed, problem, read, made, edited, found, listed, deleted, text = reply["documents"]
    assert (shell["type"], shell["metadata"]["exitCode"]) == ("terminal_command", 0)
    assert sorted(shell["metadata"]["output"].split()) == ["err", "out"]
    assert (failed["metadata"]["exitCode"], failed["metadata"]["state"]) == (3, "failed")
    assert problem["type"] == "error"
    assert read["metadata"]["result"]["data"] == "a note\n"
    assert (made["type"], made["content"], made["metadata"]["operation"]) == ("file_edit", "one\ntwo\n", "create")
    assert edited["metadata"]["diff"]["newString"] == "zwei"
    assert sorted(found["metadata"]["result"]["data"]) == ["new.txt", "notes.txt"]
    assert "notes.txt" in str(listed["metadata"]["result"]["data"])
    assert deleted["metadata"]["operation"] == "delete"
    assert text["content"] == "Done."
    assert [file.name for file in workspace.iterdir()] == ["notes.txt"]


def test_parallel_calls(client: httpx2.Client) -> None:
    """Two commands at once: each has its own output, whichever ends first."""
    calls = [{"native": "shell", "args": {"command": f"sleep {wait}; echo {name}"}} for wait, name in PAIRS]
    documents = chat(client, program({"parallel": calls}, {"say": "Both."}))["documents"]
    assert [one["metadata"].get("output") for one in documents] == ["slow\n", "fast\n", None]


PAIRS = [("0.2", "slow"), ("0", "fast")]


def test_todos_and_plans(client: httpx2.Client) -> None:
    """To-dos and a plan are documents; a question is refused by the runtime itself."""
    todos = [["Read it", "COMPLETED"], ["Change it", "IN_PROGRESS"], ["Test it", "PENDING"]]
    steps = program({"todos": todos}, {"plan": "# The plan\n\nTwo steps."}, {"question": "Which?"}, {"say": "Done."})
    listed, plan, text = chat(client, steps)["documents"]
    assert listed["type"] == "todo_update"
    assert [(one["content"], one["status"]) for one in listed["metadata"]["todos"]] == [
        ("Read it", "completed"),
        ("Change it", "in_progress"),
        ("Test it", "pending"),
    ]
    assert (plan["type"], plan["metadata"]["title"]) == ("plan", "The plan")
    assert text["content"] == "Done."


def test_usage(client: httpx2.Client) -> None:
    """The figures of Cursor's backend are passed on, those of thinking too."""
    usage = {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 30, "reasoning_tokens": 5}
    steps = program({"usage": usage}, {"say": "Hi."})
    assert chat(client, steps)["usage"] == {
        "promptTokens": 130,  # as with the CLI, Cursor counts cached tokens apart
        "completionTokens": 20,
        "totalTokens": 150,
        "cachedTokens": 30,
        "reasoningTokens": 5,
    }
    completion = ask(client, "openai", steps).json()["usage"]
    assert completion["completion_tokens_details"]["reasoning_tokens"] == 5
    response = ask(client, "responses", steps).json()["usage"]
    assert response["output_tokens_details"]["reasoning_tokens"] == 5


def test_a_search(client: httpx2.Client, gateway: RunningGateway) -> None:
    """A search names the files that matched, although the SDK loses the lines."""
    (gateway.workspace / "searched.txt").write_text("a needle\n")
    search = {"native": "grep", "args": {"pattern": "a needle", "path": str(gateway.workspace)}}
    found = chat(client, program(search, {"say": "Found."}))["documents"][0]
    assert (found["metadata"]["result"]["status"], found["metadata"]["result"]["data"]) == (
        "success",
        ["./searched.txt"],
    )


def test_a_file_that_is_missing(client: httpx2.Client) -> None:
    """A read that fails is reported as failed; the SDK does not say why."""
    steps = program({"native": "read", "args": {"path": "/nowhere/file"}}, {"say": "No."})
    called, error, _ = chat(client, steps)["documents"]
    assert called["metadata"]["state"] == "failed"
    assert error["content"] == "The tool failed; Cursor's SDK does not say why."


def test_eight_runs_at_once(client: httpx2.Client, backend: Backend) -> None:
    """Eight runs in one bridge, each with a command: none gets another's output."""
    asked = {
        number: lambda number=number: chat(
            client, program({"native": "shell", "args": {"command": f"sleep 0.2; echo {number}"}}, {"say": "It is $1"})
        )
        for number in range(8)
    }
    assert {number: text_of(reply) for number, reply in at_once(asked).items()} == {
        number: f"It is {number}" for number in range(8)
    }
    assert len(backend.requests) == 8


def test_the_output_of_a_running_command_is_seen(client: httpx2.Client, gateway: RunningGateway) -> None:
    """What a command writes is streamed while it runs, to readers that ask for it; others get the specification."""
    workspace = gateway.workspace / "live"
    workspace.mkdir()
    # It waits until what it wrote has been seen, but not forever.
    command = "echo first; for i in $(seq 600); do [ -e seen ] && break; sleep 0.1; done; ls; echo last"
    steps = program({"native": "shell", "args": {"command": command}}, {"say": "Done."})
    body = {"message": steps, "workspace": str(workspace), "stream": True}
    decoder, seen = SseDecoder(), list[SseEvent]()
    with client.stream("POST", "/v1/chat", json=body, headers={"prefer": "terminal-output"}) as response:
        for data in response.iter_bytes():
            seen += decoder.push(data)
            if any(one.event == "terminal_output" for one in seen):
                (workspace / "seen").touch()
        run = response.headers["x-chat-id"]
    names = [one.event for one in seen]
    shown = [json.loads(one.data) for one in seen if one.event == "terminal_output"]
    assert "".join(one["text"] for one in shown) == "first\nseen\nlast\n"
    ended = json.loads(seen[names.index("document_end")].data)
    assert ended["metadata"]["output"] == "first\nseen\nlast\n"
    assert names.index("terminal_output") < names.index("document_end")
    plain, live = (
        client.get(f"/v1/chat/{run}/events", headers={"prefer": prefer}).text for prefer in ("", "terminal-output")
    )
    assert "terminal_output" not in plain
    assert live.count("event: terminal_output") == len(shown)
