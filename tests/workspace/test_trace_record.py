"""What runs wrote, as a record that is valid by the specification."""

import msgspec

from cursor_gateway.model.changes import LineTrace, WrittenFile, WrittenLines
from cursor_gateway.workspace.line_authors import trace_record
from tests.workspace.agent_trace import lines, valid_record

FILE = WrittenFile("src/a.py", [WrittenLines("chat_2", 1, 2, "ab"), WrittenLines("chat_1", 4, 4, "cd")])


def _record(found: LineTrace, models: dict[str, str]) -> dict[str, object]:
    made = trace_record(found, "conv_1", 1_771_842_600_000, models, "http://127.0.0.1:8787/")
    return valid_record(msgspec.json.encode(made))


def test_a_record() -> None:
    found = LineTrace(files=[FILE], revision="0" * 40, notes=["Why."])
    record = _record(found, {"chat_1": "auto", "chat_2": "Opus 4.5 thinking"})
    assert record["vcs"] == {"type": "git", "revision": "0" * 40}
    assert record["timestamp"] == "2026-02-23T10:30:00Z"
    assert record["metadata"] == {"cursor_gateway.notes": ["Why."]}
    assert lines(record, "src/a.py") == {1: "chat_2", 2: "chat_2", 4: "chat_1"}
    assert record["files"] == [
        {
            "path": "src/a.py",
            "conversations": [
                {
                    "url": "http://127.0.0.1:8787/v1/conversations/conv_1",
                    "contributor": {"type": "ai", "model_id": f"cursor/{model}"},
                    "ranges": [{"start_line": start, "end_line": end, "content_hash": f"sha256:{hash}"}],
                    "related": [{"type": "run", "url": f"http://127.0.0.1:8787/v1/chat/{run}"}],
                }
                for run, model, start, end, hash in (
                    ("chat_1", "auto", 4, 4, "cd"),
                    ("chat_2", "Opus-4.5-thinking", 1, 2, "ab"),
                )
            ],
        }
    ]


def test_the_id_is_that_of_the_lines() -> None:
    found, models = LineTrace(files=[FILE]), {"chat_1": "auto"}
    assert _record(found, models)["id"] == _record(found, models)["id"]
    assert _record(found, models)["id"] != _record(LineTrace(files=[]), models)["id"]


def test_what_is_not_known_is_left_out() -> None:
    record = _record(LineTrace(files=[FILE]), {"chat_2": "x" * 300})
    assert {"vcs", "metadata"}.isdisjoint(record)
    assert lines(record, "src/a.py") == {1: "chat_2", 2: "chat_2", 4: "chat_1"}
    assert '"contributor": {"type": "ai"}' in str(record).replace("'", '"')  # of the run that is gone
