"""The codec of the mock, with the schemas of the installed wheel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backend.protobuf import Codec
from tests.backend.schemas import Schemas, bundle
from tests.backend.server import codec

pytestmark = pytest.mark.skipif(bundle() is None, reason="cursor-sdk is not installed")

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _texts,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_texts, below, max_size=3),
    max_leaves=8,
)


@given(
    command=_texts,
    timeout=st.integers(-(2**31), 2**31 - 1),
    words=st.lists(_texts, min_size=1),
    size=st.integers(0, 2**64 - 1),
    is_background=st.booleans(),
)
def test_what_is_encoded_is_decoded(
    command: str, timeout: int, words: list[str], size: int, is_background: bool
) -> None:
    args = {
        "command": command,
        "timeout": timeout,
        "simple_commands": words,
        "file_output_threshold_bytes": size,
        "is_background": is_background,
        "timeout_behavior": "BACKGROUND",
    }
    message = {"exec_server_message": {"id": 7, "shell_stream_args": args}}
    assert codec().decode("AgentServerMessage", codec().encode("AgentServerMessage", message)) == message


@given(st.dictionaries(_texts, _json, min_size=1, max_size=4))
def test_json_stays_json(args: dict[str, object]) -> None:
    message = {"name": "tool", "args": args}
    assert codec().decode("McpArgs", codec().encode("McpArgs", message)) == message


def test_maps_enums_bytes_and_numbers_of_every_kind() -> None:
    state = {"turns": [b"\x00\xff", b""], "mode": "PLAN", "file_states": {"a": b"1", "": b""}, "self_summary_count": 3}
    assert codec().decode("ConversationStateStructure", codec().encode("ConversationStateStructure", state)) == state
    times = {"server_first_token_ms": 1.5, "client_clock": True}
    assert codec().decode("TtftBreakdown", codec().encode("TtftBreakdown", times)) == times


def test_numbers_may_be_packed() -> None:
    own = Codec(Schemas('equals(X,$,J)}static $(){return["Packed|1 numbers 5*|2 halves 2*|3 signed 18"]}'))
    assert own.decode("Packed", b"\x0a\x03\x01\x96\x01\x12\x04\x00\x00\x00\x3f\x18\x03") == {
        "numbers": [1, 150],
        "halves": [0.5],
        "signed": -2,
    }
    assert own.decode("Packed", own.encode("Packed", {"signed": -2, "numbers": [-1]})) == {
        "numbers": [-1],
        "signed": -2,
    }


def test_unknown_fields_are_skipped_and_unknown_names_are_errors() -> None:
    assert codec().decode("BidiRequestId", b"\x0a\x01a\x7a\x01b\x79" + b"\0" * 8) == {"request_id": "a"}
    with pytest.raises(KeyError, match="has no field"):
        codec().encode("BidiRequestId", {"nonsense": 1})
    with pytest.raises(KeyError, match="2 messages are named TodoItem"):
        codec().encode("TodoItem", {})
