"""The options of the gateway's own, from a body and from headers."""

import pytest

from cursor_gateway.dialects.requests import CursorOptions, is_image, option_hints, read_text_file, with_headers
from cursor_gateway.dialects.ui import UiOptions
from cursor_gateway.errors import InvalidRequest


def test_without_headers_the_options_are_the_bodys() -> None:
    options = CursorOptions(mode="ask")
    assert with_headers(options, {"content-type": "application/json"}) is options


def test_headers_stand_for_fields_and_the_bodys_own_come_first() -> None:
    headers = {
        "x-cursor-mode": "plan",
        "x-cursor-include": "raw, thinking",
        "x-cursor-conversation-id": "conv_1",
        "x-cursor-when-client-leaves": "finish",
        "x-cursor-needs": "gpu, linux",
    }
    assert with_headers(CursorOptions(mode="ask", workspace="/w"), headers) == CursorOptions(
        mode="ask",
        workspace="/w",
        include={"raw", "thinking"},
        conversation_id="conv_1",
        when_client_leaves="finish",
        needs=["gpu", "linux"],
    )


def test_numbers_and_truth_in_headers_are_read_as_such() -> None:
    assert with_headers(CursorOptions(), {"x-cursor-priority": "-3"}).priority == -3
    assert with_headers(UiOptions(), {"x-cursor-may-ask": "true"}).may_ask is True
    for header, text in (("priority", "3.5"), ("priority", "high"), ("may-ask", "perhaps"), ("mode", "null")):
        with pytest.raises(InvalidRequest, match=f"x-cursor-{header}"):
            with_headers(UiOptions(), {f"x-cursor-{header}": text})


def test_a_header_that_is_wrong_is_named() -> None:
    with pytest.raises(InvalidRequest, match="The header x-cursor-mode is invalid") as refused:
        with_headers(CursorOptions(), {"x-cursor-mode": "quick"})
    assert refused.value.param == "x-cursor-mode"


def test_options_with_few_values_have_hints() -> None:
    hints = option_hints(CursorOptions)
    assert hints["cursor.text"] == "Send one of exact, readable."
    assert "thinking" in hints["cursor.include[]"]
    assert "cursor.workspace" not in hints


@pytest.mark.parametrize(
    ("address", "name", "text"),
    [("SGk=", "", "Hi"), ("SG\nk=", "a.txt", "File a.txt:\n\nHi"), ("DATA:text/plain;base64,SGk=", "", "Hi")],
)
def test_a_text_file_is_read_from_base64_or_a_data_uri(address: str, name: str, text: str) -> None:
    assert read_text_file(address, name, "file") == text


@pytest.mark.parametrize("address", ["no base64!", "/w=="])
def test_what_is_no_text_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match="Only text files and images") as refused:
        read_text_file(address, "", "messages[0].file")
    assert refused.value.param == "messages[0].file"


def test_an_image_says_so_in_its_address() -> None:
    assert is_image("data:IMAGE/png;base64,AA==")
    assert not is_image("data:text/plain,image/")
