"""Lines to records: the fast way, the forgiving way, and what neither can read."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.sources.cursor.records import (
    REFUSED,
    AnyRecord,
    Assistant,
    ConnectionRecord,
    QueryRecord,
    ResultRecord,
    Retry,
    System,
    TextRecord,
    Thinking,
    ToolCallRecord,
    Torn,
    Unknown,
    Unreadable,
    UsageFigures,
    User,
    decode,
    read_again,
    read_arguments,
)


def read_line(line: bytes) -> AnyRecord | None:
    try:
        return decode(line)
    except REFUSED:
        return read_again(line)


def _text(text: str) -> TextRecord:
    return msgspec.convert({"content": [{"text": text}]}, TextRecord)


PLAIN: dict[bytes, AnyRecord] = {
    b'{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"a"}]},"timestamp_ms":7}': (
        Assistant(_text("a"), timestamp_ms=7)
    ),
    b'{"type":"assistant","message":{"content":[{"text":"a"}]},"model_call_id":"m","new_field":{}}': (
        Assistant(_text("a"), model_call_id="m")
    ),
    b'{"type":"thinking","subtype":"delta","text":"hm","timestamp_ms":7}': Thinking(text="hm", timestamp_ms=7),
    b'{"type":"thinking","subtype":"completed","timestamp_ms":7}': Thinking(subtype="completed", timestamp_ms=7),
    b'{"type":"thinking","content":"hm"}': Thinking(content="hm"),
    b'{"type":"tool_call","subtype":"started","call_id":"c","tool_call":{"readToolCall":{}}}': (
        ToolCallRecord(subtype="started", call_id="c", tool_call={"readToolCall": {}})
    ),
    b'{"type":"tool_call","name":"grep","arguments":"{}","id":"c"}': ToolCallRecord(
        name="grep", arguments="{}", id="c"
    ),
    b'{"type":"interaction_query","subtype":"request","query_type":"q","query":{"id":0}}': (
        QueryRecord(subtype="request", query_type="q", query={"id": 0})
    ),
    b'{"type":"system","subtype":"init","session_id":"s","model":"Auto"}': (
        System(subtype="init", session_id="s", model="Auto")
    ),
    b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"Hi"}]}}': User(_text("Hi")),
    b'{"type":"connection","subtype":"reconnecting","attempt":2}': ConnectionRecord(subtype="reconnecting", attempt=2),
    b'{"type":"retry","subtype":"starting","attempt":1,"is_resume":true}': Retry(subtype="starting", attempt=1),
    b'{"type":"result","result":"ok","duration_ms":5,"usage":{"inputTokens":1,"cacheReadTokens":2}}': (
        ResultRecord(result="ok", duration_ms=5, usage=UsageFigures(input_tokens=1, cache_read_tokens=2))
    ),
    b'{"type":"result","subtype":"error","is_error":true}': ResultRecord(subtype="error", is_error=True),
}

LOOSE: dict[bytes, AnyRecord] = {
    # numbers as strings, strings of digits that are no numbers, fields that are null
    b'{"type":"connection","subtype":"reconnecting","attempt":"2"}': ConnectionRecord(
        subtype="reconnecting", attempt=2
    ),
    b'{"type":"result","result":"ok","duration_ms":"5","usage":{"inputTokens":"3"}}': (
        ResultRecord(result="ok", duration_ms=5, usage=UsageFigures(input_tokens=3))
    ),
    b'{"type":"system","subtype":"init","session_id":null,"model":null}': System(subtype="init"),
    b'{"type":"tool_call","subtype":"started","call_id":null,"tool_call":null}': ToolCallRecord(subtype="started"),
    b'{"type":"result","result":"ok","usage":{"inputTokens":3,"outputTokens":null}}': (
        ResultRecord(result="ok", usage=UsageFigures(input_tokens=3))
    ),
    # a result is never lost for a figure
    b'{"type":"result","subtype":"success","result":"ok","usage":"none"}': ResultRecord(result="ok"),
    b'{"type":"result","subtype":"success","duration_ms":1e400}': ResultRecord(),
    b'{"type":"result","subtype":"success","result":[]}': ResultRecord(),
    b'{"type":"result","subtype":"success","is_error":true,"result":"boom","duration_ms":[]}': (
        ResultRecord(is_error=True, result="boom")
    ),
    b'{"type":"result","subtype":"error","result":"boom","duration_ms":[]}': ResultRecord(
        subtype="error", result="boom"
    ),
    # content in several parts, as one string, the message itself a string, parts without text, no content at all
    b'{"type":"user","message":{"content":"Hi"}}': User(_text("Hi")),
    b'{"type":"user","message":"Hi"}': User(_text("Hi")),
    b'{"type":"user","message":{"content":[{"type":"image"},{"text":null},{"text":"Hi"},7]}}': User(_text("Hi")),
    b'{"type":"user","message":7}': User(_text("")),
    b'{"type":"assistant","message":{"content":"Hi"},"timestamp_ms":7}': Torn(Assistant(_text("Hi"), timestamp_ms=7)),
    b'{"type":"assistant","message":{"content":"Hi"},"timestamp_ms":"7"}': Torn(Assistant(_text("Hi"), timestamp_ms=7)),
    b'{"type":"thinking","subtype":null,"text":"hm"}': Torn(Thinking(text="hm")),
    # half a character: repaired at once where it has no neighbour, kept where it has
    b'{"type":"assistant","message":{"content":[{"text":"a\\ud83d"}]}}': Torn(Assistant(_text("a\ud83d"))),
    b'{"type":"thinking","text":"\\ude00"}': Torn(Thinking(text="\ude00")),
    b'{"type":"user","message":{"content":[{"text":"a\\ud83d"}]}}': User(_text("a\ufffd")),
    b'{"type":"result","result":"\\ud83d\\ud83d\\ude00"}': ResultRecord(result="\ufffd\U0001f600"),
    b'{"type":"tool_call","tool_call":{"x\\ud83d":["\\ude00",1]}}': ToolCallRecord(
        tool_call={"x\ufffd": ["\ufffd", 1]}
    ),
    b'{"type":"assistant","message":{"content":[]},"timestamp_ms":"\\ud83d"}': Unknown("assistant"),
    # a number beyond 64 bits
    b'{"type":"tool_call","tool_call":{"n":123456789012345678901234567890}}': (
        ToolCallRecord(tool_call={"n": 123456789012345678901234567890})
    ),
}

DEEP = b'{"type":"%b","message":' + b"[" * 600 + b'"\\ud800"' + b"]" * 600 + b"}"

STRANGE: dict[bytes, AnyRecord] = {
    b"T: [internal] Failed to run step": Unreadable("T: [internal] Failed to run step"),
    b" \xff\xfe ": Unreadable("\ufffd\ufffd"),
    b'{"type":"assistant","mess': Unreadable('{"type":"assistant","mess'),
    b"[1]": Unreadable("[1]"),
    b"12": Unreadable("12"),
    b"[" * 100_000: Unreadable("[" * 2000),
    # deep enough for the standard library, too deep to be repaired
    DEEP % b"user": Unreadable((DEEP % b"user")[:2000].decode()),
    DEEP % b"tool_call": Unreadable((DEEP % b"tool_call")[:2000].decode()),
    DEEP % b"telemetry": Unreadable((DEEP % b"telemetry")[:2000].decode()),
    b'{"type":"telemetry","x":1}': Unknown("telemetry"),
    b'{"type":7}': Unknown(""),
    b'{"grepToolCall":{}}': Unknown(""),
    b'{"type":"assistant"}': Unknown("assistant"),
    b'{"type":"connection","attempt":[]}': Unknown("connection"),
}


@pytest.mark.parametrize(("line", "record"), [*PLAIN.items(), *LOOSE.items(), *STRANGE.items()])
def test_a_line_is_read_as_what_it_means(line: bytes, record: AnyRecord) -> None:
    assert read_line(line) == record


@pytest.mark.parametrize("blank", [b"", b" ", b"\r", b"\t \r"])
def test_a_blank_line_is_nothing(blank: bytes) -> None:
    assert read_line(blank) is None


@pytest.mark.parametrize("line", PLAIN)
def test_the_forgiving_way_reads_what_the_fast_way_reads(line: bytes) -> None:
    again = read_again(line)
    assert (again.record if isinstance(again, Torn) else again) == decode(line)


def test_a_carriage_return_before_the_line_end_is_no_part_of_the_record() -> None:
    assert read_line(b'{"type":"system"}\r') == System()


@pytest.mark.parametrize(
    "content", [b'[{"text":"ab"}]', b'[{"text":"a"},{"type":"image"},{"text":""},{"text":"b"}]', b'"ab"']
)
def test_the_text_of_a_message_is_that_of_all_its_parts(content: bytes) -> None:
    record = read_line(b'{"type":"user","message":{"content":%b}}' % content)
    assert isinstance(record, User)
    assert record.message.text == "ab"


NESTED = '{"a":' * 300 + "1" + "}" * 300

ARGUMENTS: dict[str, tuple[object, dict[str, Any]]] = {
    "none": (None, {}),
    "an object": ({"a": 1}, {"a": 1}),
    "its JSON": ('{"a":1}', {"a": 1}),
    "no JSON": ("ls -l", {"input": "ls -l"}),
    "JSON that is no object": ("[1]", {"input": [1]}),
    "a number": (7, {"input": 7}),
    "half a character as a value": (r'{"a":"\ud800"}', {"a": "\ufffd"}),
    "half a character as a key": (r'{"\ud800":"a"}', {"\ufffd": "a"}),
    "half a character inside": (r'{"a":[{"b":"\udc00x"}]}', {"a": [{"b": "\ufffdx"}]}),
    "half a character alone": (r'"\ud800"', {"input": "\ufffd"}),
    "halves that meet": (r'{"a":"\ud83d\ude00"}', {"a": "\U0001f600"}),
    "300 levels": (NESTED, {"input": NESTED}),
    "300 levels around half a character": (
        "[" * 300 + r'"\ud800"' + "]" * 300,
        {"input": "[" * 300 + r'"\ud800"' + "]" * 300},
    ),
    "absurd nesting": ("[" * 100_000, {"input": "[" * 100_000}),
}


@pytest.mark.parametrize(("given", "arguments"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_the_arguments_of_the_oldest_builds_are_an_object_that_can_be_encoded(
    given: object, arguments: dict[str, Any]
) -> None:
    assert read_arguments(given) == arguments
    assert msgspec.json.encode(read_arguments(given))


@given(st.text(st.sampled_from('{}[]":,\\ud8dc0a1 \n'), max_size=20) | st.text(max_size=5))
def test_no_arguments_at_all_raise(arguments: str) -> None:
    assert msgspec.json.encode(read_arguments(arguments))


@given(st.binary(max_size=30))
def test_no_bytes_at_all_raise(line: bytes) -> None:
    assert read_line(line) is None or isinstance(read_line(line), Unreadable)


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["assistant", "thinking", "tool_call", "result", "user", "system", "new", 1, None])},
        optional={
            name: st.recursive(
                st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.floats(allow_nan=False)),
                lambda values: st.one_of(
                    st.lists(values, max_size=2),
                    st.dictionaries(st.sampled_from(["content", "text"]), values, max_size=2),
                ),
                max_leaves=3,
            )
            for name in ("message", "text", "subtype", "tool_call", "timestamp_ms", "result", "usage")
        },
    )
)
def test_no_object_at_all_raises(record: dict[str, Any]) -> None:
    assert read_line(json.dumps(record).encode()) is not None
