"""The specification's own examples (its sections 3, 4, 5 and 7): recordings that give exactly what it shows."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cursor_gateway import ChatResponse, RunInfo, SseDecoder, SseEncoder, read_events, read_response
from tests.scenarios.golden import Scenario, scenario, write

SPECIFICATION = Path(__file__).parents[2] / "../shared/seeds/000_ec2bac7d70fa9219.txt"

FULL = scenario("specification_full")
DOCUMENTS = scenario("specification_documents")
ERROR = scenario("specification_error")
EVENTS = scenario("specification_events")

SECTIONS = ["3.1", "3.2", "3.3", "3.4 create", "3.4 edit", "3.5", "3.6", "3.7", "3.8", "3.9", "3.10"]

TEXT_EVENTS = """\
event: document_start
data: {"id":"doc_001","type":"text","sequence":1}
event: content_delta
data: {"documentId":"doc_001","delta":"Ich analysiere "}
event: content_delta
data: {"documentId":"doc_001","delta":"zuerst die bestehende "}
event: content_delta
data: {"documentId":"doc_001","delta":"Projektstruktur..."}
event: document_end
data: {"documentId":"doc_001","finalContent":"Ich analysiere zuerst die bestehende Projektstruktur..."}
"""

TOOL_EVENTS = """\
event: document_start
data: {"id":"doc_002","type":"tool_call","sequence":2}
event: tool_call_start
data: {"documentId":"doc_002","toolName":"read_file","toolCallId":"call_001"}
event: tool_call_arguments
data: {"documentId":"doc_002","arguments":{"target_file":"src/main.py"}}
event: tool_result
data: {"documentId":"doc_002","result":{"status":"success","data":"import os\\n..."}}
event: document_end
data: {"documentId":"doc_002"}
"""


def test_the_full_example_field_for_field() -> None:
    assert _plain(read_response(FULL.lines, FULL.run)) == _shown_response()


def test_split_fences_make_the_last_one_a_code_block() -> None:
    run: RunInfo = msgspec.structs.replace(FULL.run, fences="split")
    shown = _shown_response()
    text = shown["documents"].pop()
    prose, code = text["content"].removesuffix("\n```").split("\n\n```python\n")
    shown["documents"] += [
        {**text, "content": prose},
        {
            "id": "doc_010",
            "type": "code_block",
            "sequence": 10,
            "content": code,
            "metadata": {"language": "python", "purpose": "new_code"},
        },
    ]
    assert _plain(read_response(FULL.lines, run)) == shown


@pytest.mark.parametrize("number", range(len(SECTIONS)), ids=SECTIONS)
def test_each_single_document(number: int) -> None:
    shown = _shown_documents()[number]
    # 3.4 shows a file without a diff as `null`; 4 and 6 leave it out, and so do we.
    shown["metadata"] = {name: value for name, value in shown["metadata"].items() if value is not None}
    source = DOCUMENTS if number < 9 else ERROR
    assert _plain(read_response(source.lines, source.run))["documents"][number] == shown


@pytest.mark.parametrize("shown", [TEXT_EVENTS, TOOL_EVENTS], ids=["5.2", "5.3"])
def test_each_sequence_of_events(shown: str) -> None:
    expected = _events(shown)
    document = expected[0][1]["id"]
    said = [
        (name, payload) for name, payload in _said(EVENTS) if document in (payload.get("id"), payload.get("documentId"))
    ]
    assert [name for name, _ in said] == [name for name, _ in expected]
    for (_, payload), (_, wanted) in zip(said, expected, strict=True):
        assert {key: payload.get(key) for key in wanted} == wanted


@pytest.mark.skipif(not SPECIFICATION.exists(), reason="the specification's text is not here")
def test_the_sequences_are_quoted_from_the_specification() -> None:
    assert TEXT_EVENTS in _section("5.2 ", "5.3 ")
    assert TOOL_EVENTS in _section("5.3 ", "6. ")


@pytest.mark.parametrize("source", [FULL, DOCUMENTS, ERROR, EVENTS], ids=lambda source: source.name)
def test_what_is_compared_with_the_specification_is_never_written_anew(source: Scenario, tmp_path: Path) -> None:
    """Else, where the specification's text is not here, our output would be compared with itself."""
    assert source.about.fixed == ["documents.json"]
    copy = msgspec.structs.replace(source, folder=Path(shutil.copytree(source.folder, tmp_path / source.name)))
    assert write(copy) == []
    fixed, ours = copy.folder / "documents.json", copy.folder / "text.txt"
    for file in (fixed, ours):
        file.write_bytes(b"of other opinion")
    assert write(copy) == [fixed]
    assert fixed.read_bytes() == b"of other opinion"
    assert copy.expected("text.txt") == source.expected("text.txt")


def _section(first: str, next: str) -> str:
    text = SPECIFICATION.read_text(encoding="utf-8")
    start = re.search(rf"^{re.escape(first)}", text, re.MULTILINE)
    end = re.search(rf"^{re.escape(next)}", text, re.MULTILINE)
    assert start
    assert end
    return text[start.start() : end.start()]


def _objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in a text; those with comments or alternatives in them are no examples."""
    found, position = [], 0
    while (position := text.find("{\n", position)) >= 0:
        try:
            value, position = json.JSONDecoder().raw_decode(text, position)
            found.append(value)
        except json.JSONDecodeError:
            position += 1
    return found


def _shown_response() -> dict[str, Any]:
    if not SPECIFICATION.exists():
        return _expected(FULL)
    [response] = _objects(_section("4. ", "5. "))
    return response


def _shown_documents() -> list[dict[str, Any]]:
    if not SPECIFICATION.exists():
        return [*_expected(DOCUMENTS)["documents"][:9], *_expected(ERROR)["documents"][9:]]
    return _objects(_section("3.1 ", "4. "))


def _expected(source: Scenario) -> dict[str, Any]:
    response: dict[str, Any] = json.loads(source.expected("documents.json"))
    return response


def _plain(response: ChatResponse) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(response)
    return plain


def _events(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, json.loads(data)) for name, data in re.findall(r"event: (\w+)\ndata: (.*)\n", text)]


def _said(source: Scenario) -> list[tuple[str, dict[str, Any]]]:
    encoder, decoder = SseEncoder(), SseDecoder()
    frames = [encoder.push(event) for event in read_events(source.lines, source.run)]
    return [(event.event, json.loads(event.data)) for frame in frames for event in decoder.push(frame)]
