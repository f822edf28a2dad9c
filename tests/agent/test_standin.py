"""The stand-in, run as a process: what a client of cursor-agent may rely on, and what it must survive."""

import json
import signal
from typing import Any

import pytest

from cursor_gateway import RunInfo, read_events, read_response, source_text
from tests.agent.driving import PARTIAL, STREAM, TIMEOUT, Standin, kinds, parsed, read_until, text_of
from tests.agent.quick import ASKED

pytestmark = pytest.mark.slow  # tests of a tool: all tests of sources and gateways drive it

UNKNOWN = "0f0e0d0c-0b0a-4908-8706-050403020100"

SUCCESSFUL = {
    "": "Hello, and good day!",
    "text": "standin: text chunks=7 length=200",
    "say": "standin: say size=1\n---\nÉ 😀👩‍💻 a\u2028b\n\n```py\nx\n```\n",
    "thinking": "standin: thinking",
    "empty": "standin: empty",
    "fences": "standin: fences",
    "json": 'standin: json\n---\n{"a": [1, "😀"]}',
    "json-bad-then-good": "standin: json-bad-then-good\n---\n{}",
    "usage": "standin: usage input=5",
    "echo-env": "standin: echo-env",
    "echo-args": "standin: echo-args",
    "history": "standin: history",
    "tools": "standin: tools",
    "parallel": "standin: parallel",
    "shell": "standin: shell command=ls",
    "read": "standin: read path=missing.txt",
    "edit": "standin: edit path=new.txt\n---\nfresh\n",
    "web": "standin: web",
    "websearch": "standin: websearch",
    "mcp": "standin: mcp",
    "question": "standin: question",
    "plan": "standin: plan",
    "query-flush": "standin: query-flush",
    "no-newline": "standin: no-newline",
    "garbage": "standin: garbage",
    "bad-utf8": "standin: bad-utf8",
    "huge-line": "standin: huge-line size=200000",
    "stderr-flood": "standin: stderr-flood bytes=1000",
    "slow": "standin: slow count=2 delay_ms=1",
    "silent": "standin: silent ms=1",
    "wait-for": "standin: wait-for file=/",
    "program": 'standin: program\n---\n[{"say": "é"}, {"think": "b"}, {"native": "ls", "args": {"path": "."}}]',
}


# what is said


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("flags", [STREAM, PARTIAL], ids=["whole", "partial"])
@pytest.mark.parametrize("name", SUCCESSFUL)
@pytest.mark.parametrize("more", [(), ("--force",)], ids=["careful", "forced"])
@pytest.mark.quick_cases(19)
def test_what_our_reader_reads_is_what_the_result_says(
    standin: Standin, name: str, flags: tuple[str, ...], more: tuple[str, ...]
) -> None:
    ran = standin.run(*flags, *more, stdin=SUCCESSFUL[name])
    assert ran.returncode == 0, ran.stderr
    assert name == "stderr-flood" or ran.stderr == ""
    assert ran.stdout.endswith("\n") == (name != "no-newline")
    output = ran.stdout.encode("utf-8", "surrogateescape")
    result = json.loads(output.splitlines()[-1])["result"]
    run = RunInfo(id="chat_1", created="2026-02-23T10:30:00Z")
    assert read_response([output], run).status == "completed"
    assert "".join(map(source_text, read_events([output], run))) == result


@pytest.mark.parametrize("name", sorted(SUCCESSFUL.keys() - {"garbage", "bad-utf8"}))
@pytest.mark.quick_cases(7)
def test_whole_segments_joined_are_the_result(standin: Standin, name: str) -> None:
    *records, result = standin.records(SUCCESSFUL[name])
    assert "".join(text_of(one) for one in records if one["type"] == "assistant") == result["result"]


def test_the_first_and_last_records_have_the_recorded_fields_in_their_order(standin: Standin) -> None:
    init, user, *_, result = standin.records("Hello")
    assert [*init] == ["type", "subtype", "apiKeySource", "cwd", "session_id", "model", "permissionMode"]
    assert [*user] == ["type", "message", "session_id"]
    durations = ["duration_ms", "duration_api_ms", "is_error"]
    assert [*result] == ["type", "subtype", *durations, "result", "session_id", "request_id", "usage"]
    assert (init["cwd"], init["model"], text_of(user)) == (str(standin.workspace), "Auto", "Hello")


def test_text_is_said_once_more_when_a_call_starts_and_at_the_end(standin: Standin) -> None:
    records = parsed(standin.run(*PARTIAL, stdin="standin: parallel").stdout)
    said = [record for record in records if record["type"] == "assistant"]
    recap, end = said[6], said[-1]
    assert [*recap] == ["type", "message", "session_id", "model_call_id", "timestamp_ms"]
    assert text_of(recap) == "".join(text_of(delta) for delta in said[:6]) == "Running both at the same time."
    assert [*said[0]] == ["type", "message", "session_id", "timestamp_ms"]
    assert [*end] == ["type", "message", "session_id"]
    assert text_of(end) == "done"


def test_a_flush_before_a_query_has_the_fields_of_a_delta(standin: Standin) -> None:
    records = parsed(standin.run(*PARTIAL, stdin="standin: query-flush").stdout)
    at = kinds(records).index("interaction_query/request")
    delta, flush = records[at - 2 : at]
    assert [*delta] == [*flush] == ["type", "message", "session_id", "timestamp_ms"]
    assert text_of(delta) == text_of(flush)


def test_parallel_calls_share_the_models_call_and_end_in_their_own_order(standin: Standin) -> None:
    calls = [record for record in standin.records("standin: parallel") if record["type"] == "tool_call"]
    assert [record["subtype"] for record in calls] == ["started", "started", "completed", "completed"]
    assert len({record["model_call_id"] for record in calls}) == 1
    slow, fast, first, second = (record["call_id"] for record in calls)
    assert (first, second) == (fast, slow)
    assert "\n" in slow


def test_the_model_call_counts_up_after_a_tool(standin: Standin) -> None:
    records = standin.records("standin: tools")
    numbers = [record["model_call_id"].split("-")[5] for record in records if "model_call_id" in record]
    assert sorted(set(numbers), key=int) == [str(number) for number in range(11)]


def test_an_emoji_may_be_cut_in_halves(standin: Standin) -> None:
    ran = standin.run(*PARTIAL, stdin="standin: say size=1\n---\n😀")
    assert '"text":"\\ud83d"' in ran.stdout
    assert '"text":"\\ude00"' in ran.stdout
    assert parsed(ran.stdout)[-1]["result"] == "😀"


# prompts and arguments


def test_a_first_word_that_is_a_command_is_one(standin: Standin) -> None:
    assert standin.run("-p", "status").stdout == "✓ Logged in as user@example.com\n"
    assert standin.run("-p", "status", "quo").stdout == "✓ Logged in as user@example.com\n"
    assert standin.run("-p", "status quo").stdout == "You said: status quo\n"
    assert standin.run("-p", "chat").stdout == "You said: chat\n"


def test_the_last_scenario_counts(standin: Standin) -> None:
    transcript = (
        "User: standin: crash\nAssistant: no.\n<user>standin: say size=2</user>\n---\nyes\n--- end\nAnswer now."
    )
    assert standin.answer(transcript) == "yes"
    assert standin.run("-p", "standin: nonsense").returncode == 64


def test_stdin_is_read_only_without_a_prompt_among_the_arguments(standin: Standin) -> None:
    assert standin.run("-p", stdin="from stdin").stdout == "You said: from stdin\n"
    assert standin.run("-p", "from here", stdin="from stdin").stdout == "You said: from here\n"
    assert standin.run(stdin="without -p").stdout == "You said: without -p\n"


# failures


LATE = ["system/init", "user", *["assistant"] * 6]
LOST = ["connection/reconnecting", "retry/starting"] * 3
LOST_LATE = ["connection/reconnecting", "retry/starting", "retry/resuming"] * 3


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize(
    ("prompt", "status", "said", "events"),
    [
        ("fail-auth", 1, "Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY", []),
        ("fail-key", 1, "\x1b[33m⚠ Warning: The provided API key is invalid.", []),
        ("fail-trust", 1, "\n⚠ Workspace Trust Required\n", []),
        ("fail-model model=x", 1, "Cannot use this model: x. Available models: auto, gpt-5.3-codex-low, ", []),
        ("fail-resume", 1, 'Failed to resume chat "', []),
        ("fail-force", 1, "Error: Your team administrator has disabled the 'Run Everything' option.\n", []),
        ("fail-sandbox", 1, "Sandbox mode is enabled but not available on this system\n", []),
        ("fail-free-plan", 1, "ActionRequiredError: Named models unavailable Free plans can only use Auto.", LATE[:2]),
        ("fail-quota", 1, "Error: You've hit your usage limit\nfallbackModel:\nspendLimitHit: false\n", LATE),
        ("fail-quota variant=action", 1, "ActionRequiredError: You've reached your usage limit\n", LATE),
        ("fail-quota-early", 1, "Error: You've hit your usage limit\n", LATE[:2]),
        ("fail-capacity", 1, "RetriableError: [resource_exhausted] Error\n", [*LATE[:2], *LOST]),
        ("fail-capacity class=T", 1, "T: [resource_exhausted] Error\n", [*LATE[:2], *LOST]),
        ("fail-capacity-late", 1, "RetriableError: [resource_exhausted] Error\n", [*LATE, *LOST_LATE]),
        ("fail-network", 1, "RetriableError: [unavailable] getaddrinfo ENOTFOUND ", [*LATE[:2], *LOST]),
        ("fail-network kind=ping", 1, "RetriableError: [unavailable] PING timed out\n", [*LATE[:2], *LOST]),
        ("fail-network-late", 1, "RetriableError: [canceled] http/2 stream closed ", [*LATE, *LOST_LATE]),
        ("fail-internal", 1, "RetriableError: [internal] Failed to run step, exceeded max retries\n", None),
        ("fail-result", 1, "", [*LATE[:2], "result/error"]),
        ("crash", 1, "", LATE),
        ("crash exit=9", 9, "", LATE),
        ("crash-early", 3, "", []),
        ("killed", -signal.SIGKILL, "", LATE),
        ("truncated", 0, "", LATE),
    ],
)
def test_a_failure(standin: Standin, prompt: str, status: int, said: str, events: list[str] | None) -> None:
    ran = standin.run(*PARTIAL, f"standin: {prompt}")
    assert (ran.returncode, ran.stderr[: len(said)]) == (status, said)
    assert bool(said) == bool(ran.stderr)
    if events is None:
        assert kinds(parsed(ran.stdout))[-1] == "connection/reconnected"
    else:
        assert kinds(parsed(ran.stdout)) == events


# trust, model, permissions


def test_trust_is_remembered_and_force_is_not(standin: Standin) -> None:
    standin.set()
    refused = standin.run("-p", "hi")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"\n    {standin.workspace}\n" in refused.stderr
    assert standin.run("-p", "-f", "hi").returncode == 0
    assert standin.run("-p", "hi").returncode == 1
    assert standin.run("-p", "--trust", "hi").returncode == 0
    assert standin.run("-p", "hi").returncode == 0
    assert [*standin.configuration.glob("projects/*/.workspace-trusted")]


def test_a_model_that_is_passed_stays(standin: Standin) -> None:
    standin.configure(version=1, permissions={"allow": ["Shell(git)"], "deny": []}, extra="kept")
    assert standin.records("hi", "--model", "gpt-5.3-codex")[0]["model"] == "Codex 5.3 Low"
    written = standin.configured()
    assert written["model"]["modelId"] == "gpt-5.3-codex-low"
    assert (written["hasChangedDefaultModel"], written["extra"]) == (True, "kept")
    assert written["permissions"]["allow"] == ["Shell(git)"]
    assert standin.records("hi")[0]["model"] == "Codex 5.3 Low"
    assert "gpt-5.3-codex-low - Codex 5.3 Low (current)\n" in standin.run("models").stdout
    assert standin.records("hi", "--model", "auto")[0]["model"] == "Auto"


@pytest.mark.parametrize(
    ("allow", "flags", "runs"),
    [
        ([], [], False),
        (["Shell(touch)"], [], True),
        (["Shell(touch:*)"], [], True),
        (["Shell(*)"], [], True),
        (["Shell(ls)"], [], False),
        (["Shell(tou)"], [], False),
        ([], ["--force"], True),
        ([], ["--force", "--mode", "plan"], False),
    ],
)
def test_a_command_runs_only_if_permitted(standin: Standin, allow: list[str], flags: list[str], runs: bool) -> None:
    standin.configure(permissions={"allow": allow, "deny": []})
    records = standin.records('standin: shell command="touch proof"', *flags)
    assert (standin.workspace / "proof").exists() == runs
    [done] = [record for record in records if record.get("subtype") == "completed"]
    body = done["tool_call"]["shellToolCall"]
    assert [*body["result"]] == (["success", "isBackground"] if runs else ["rejected"])
    assert ("args" in body) == runs


def test_every_part_of_a_command_must_be_permitted(standin: Standin) -> None:
    standin.configure(permissions={"allow": ["Shell(true)"], "deny": []})
    standin.records("standin: shell\n---\ntrue && touch proof")
    assert not (standin.workspace / "proof").exists()


def test_what_is_denied_is_denied_even_by_the_project(standin: Standin) -> None:
    (standin.workspace / ".cursor").mkdir()
    rules = {"permissions": {"allow": ["Mcp(tracker:*)"], "deny": ["Shell(touch)", "Write(secret/*)"]}}
    (standin.workspace / ".cursor" / "cli.json").write_text(json.dumps(rules))
    assert "rejected" in standin.answer('standin: shell command="touch proof"', "--force")
    assert "may not write" in standin.answer("standin: edit path=secret/key")
    assert "The issue is open." in standin.answer("standin: mcp")
    assert "may not be asked" in standin.answer("standin: mcp server=other")


def test_an_edit_changes_the_file(standin: Standin) -> None:
    file = standin.workspace / "notes.txt"
    file.write_text("alpha\nbeta\n")
    records = standin.records('standin: edit path=notes.txt old=beta new="gamma ray"')
    assert file.read_text() == "alpha\ngamma ray\n"
    [done] = [record for record in records if record.get("subtype") == "completed"]
    success = done["tool_call"]["editToolCall"]["result"]["success"]
    assert (success["linesAdded"], success["linesRemoved"]) == (1, 1)
    assert success["diffString"].endswith("@@ -1,2 +1,2 @@\n alpha\n-beta\n+gamma ray")
    assert (success["beforeFullFileContent"], success["afterFullFileContent"]) == (
        "alpha\nbeta\n",
        "alpha\ngamma ray\n",
    )


def test_a_new_file_has_no_before(standin: Standin) -> None:
    records = standin.records("standin: edit path=count.txt\n---\n3\n")
    success = next(r for r in records if r.get("subtype") == "completed")["tool_call"]["editToolCall"]["result"][
        "success"
    ]
    assert "beforeFullFileContent" not in success
    assert success["diffString"] == f"--- /dev/null\n+++ b/{standin.workspace}/count.txt\n@@ -1 +1 @@\n-\n+3"


def test_web_needs_force_and_asks_itself(standin: Standin) -> None:
    order = ["tool_call/started", "interaction_query/request", "interaction_query/response", "tool_call/completed"]
    for words, answer in (([], "rejected"), (["--force"], "approved")):
        records = [one for one in standin.records("standin: web", *words) if one["type"] in order[0] + order[1]]
        assert kinds(records) == order
        assert [*records[2]["response"]["webFetchRequestResponse"]] == [answer]


def test_a_rejected_search_ends_without_having_started(standin: Standin) -> None:
    assert "tool_call/started" not in kinds(standin.records("standin: websearch"))
    assert "tool_call/started" in kinds(standin.records("standin: websearch", "--force"))


# sessions


def known(standin: Standin, *words: str) -> Any:
    return json.loads(standin.answer("standin: history", *words))


def test_a_resumed_session_knows_its_history(standin: Standin) -> None:
    chat = standin.records("first")[0]["session_id"]
    assert known(standin, "--resume", chat) == {"turns": 1, "prompts": ["first"], "answers": ["You said: first"]}
    assert known(standin, f"--resume={chat}")["turns"] == 2
    assert known(standin)["turns"] == 0


def test_an_unknown_session_begins_empty_under_its_id(standin: Standin) -> None:
    records = standin.records("standin: history", "--resume", UNKNOWN)
    assert records[0]["session_id"] == UNKNOWN
    assert json.loads(records[-1]["result"])["turns"] == 0


def test_a_session_belongs_to_its_directory(standin: Standin) -> None:
    chat = standin.records("first")[0]["session_id"]
    (standin.home / "elsewhere").mkdir()
    assert known(standin, "--resume", chat, "--workspace", str(standin.home / "elsewhere"))["turns"] == 0


def test_what_cannot_be_resumed(standin: Standin) -> None:
    ran = standin.run("-p", "--resume", "x", "hi")
    reply = 'Failed to claim persistent session for chat "x": Persistent-session chat ID must be a UUID\n'
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", reply)
    chat = standin.records("first")[0]["session_id"]
    [store] = standin.configuration.glob(f"chats/*/{chat}/store.db")
    store.write_bytes(b"\x00broken")
    ran = standin.run("-p", "--resume", chat, "hi")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f'Failed to resume chat "{chat}": ')


def test_continue_takes_the_newest(standin: Standin) -> None:
    assert known(standin, "--continue")["turns"] == 0
    standin.answer("older")
    standin.answer("newer")
    assert known(standin, "--continue")["prompts"] == ["newer"]
    assert known(standin, "--resume=-1")["prompts"] == ["newer", "standin: history"]
    assert known(standin, "--resume=-2")["prompts"] == ["older"]


def test_a_new_session_id_is_used_once(standin: Standin) -> None:
    assert standin.records("hi", "--new-session-id", UNKNOWN)[0]["session_id"] == UNKNOWN
    again = standin.run("-p", "--new-session-id", UNKNOWN, "hi")
    assert (again.returncode, again.stderr) == (1, f'Error: Session ID "{UNKNOWN}" is already in use.\n')


# signals and time


@pytest.mark.parametrize("prompt", ["hang-after-init", "hang-mid", "hang-after-result", "slow delay_ms=60000"])
def test_sigint_and_sigterm(standin: Standin, prompt: str) -> None:
    for number, status, said in (
        (signal.SIGINT, 130, b"Aborting operation...\nOperation cancelled\n"),
        (signal.SIGTERM, 143, b""),
    ):
        process = standin.start(*STREAM, f"standin: {prompt}")
        read_until(process, b'"type":"user"')
        process.send_signal(number)
        _, reply = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, reply) == (status, said)


def test_a_terminated_session_can_be_resumed(standin: Standin) -> None:
    process = standin.start(*PARTIAL, "standin: hang-mid")
    seen = read_until(process, b"more.")
    process.terminate()
    assert process.wait(TIMEOUT) == 143
    chat = json.loads(seen.splitlines()[0])["session_id"]
    assert known(standin, "--resume", chat)["answers"] == ["I was about to say more."]


# other commands and knobs


@pytest.mark.parametrize("word", ASKED)
@pytest.mark.parametrize(
    "knobs", [{}, {"version": "2025.01.01-a", "models": "one - The One,two"}, {"login": "none"}, {"models_fail": "1"}]
)
def test_prepared_answers_are_those_of_the_program(standin: Standin, word: str, knobs: dict[str, object]) -> None:
    log = standin.home / "log"
    standin.set(log=str(log), **knobs)
    quick, whole = standin.run(word), standin.run(word, STANDIN_ANYTHING="1")
    assert (quick.returncode, quick.stdout, quick.stderr) == (whole.returncode, whole.stdout, whole.stderr)
    one, other = ({**json.loads(line), "pid": 0, "pgid": 0} for line in log.read_bytes().splitlines())
    other["environment"]["names"].remove("STANDIN_ANYTHING")
    assert one == other


def test_prepared_answers_are_not_given_where_something_has_changed(standin: Standin) -> None:
    standin.set(models="one,two")
    standin.configure(model={"modelId": "two"})
    assert "two - two (current)" in standin.run("--list-models").stdout
    assert standin.run("--list-models", CURSOR_API_KEY="bad").returncode == 1
    (standin.program.parent / "standin.json").write_text('{"version": "2024.01.01-b"}')
    assert standin.run("--version").stdout == "2024.01.01-b\n"
