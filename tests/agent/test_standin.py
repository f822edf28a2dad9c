"""The stand-in, run as a process: its records are as recorded. The rest of it is tested by all that drive it."""

import json

import pytest

from cursor_gateway import RunInfo, read_events, read_response, source_text
from tests.agent.driving import PARTIAL, STREAM, Standin, kinds, parsed, text_of
from tests.agent.quick import ASKED

pytestmark = pytest.mark.slow  # tests of a tool

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
