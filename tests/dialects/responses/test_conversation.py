"""Input items as a conversation."""

import base64
from typing import Any

import pytest

from cursor_gateway.dialects.responses.conversation import (
    Declared,
    Forms,
    Placed,
    ResponsesConversation,
    compacted_response,
    declared_tools,
    pack,
    read_conversation,
    read_items,
    without_retried,
)
from cursor_gateway.dialects.responses.shapes import Prefix, item_id
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.messages import AssistantMessage, Instructions, Message, ToolCall, ToolMessage, UserMessage

RUN = f"chat_{'0a' * 16}"
FORMS = Forms({"notes__add": Declared("custom", "add", "notes"), "weather": Declared("function", "weather")})
PNG = "data:image/png;base64,iVBORw0KGgo="


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(text: str, index: int, after: int = 0, **more: Any) -> dict[str, Any]:
    """A message of ours."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    id = item_id("msg", RUN, after, index)
    return {"type": "message", "id": id, "role": "assistant", "content": content, **more}


def called(id: str, index: int | None = None, after: int = 0, **more: Any) -> dict[str, Any]:
    ours = {} if index is None else {"id": item_id("fc", RUN, after, index)}
    return {"type": "function_call", "call_id": id, "name": "weather", "arguments": "{}", **ours, **more}


def gave(id: str, output: Any = "sunny") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": output}


def read(*items: Any, max_images: int = 5) -> ResponsesConversation:
    return read_conversation(read_items(items), "", FORMS, max_images)


def messages(*items: Any) -> list[Message]:
    return list(read(*items).messages)


WEATHER = ToolCall("c1", "weather", "{}")


# --- items ------------------------------------------------------------------------------------------


def test_a_text_is_one_message() -> None:
    assert read_items(None) == []
    (placed,) = read_items("Hi")
    assert read_conversation([placed], "Be brief.", FORMS, 0).messages == (Instructions("Be brief."), UserMessage("Hi"))


def test_the_last_compaction_is_unpacked_in_its_place() -> None:
    first, last = ({"type": "compaction", "encrypted_content": pack([user(text)])} for text in ("older", "old"))
    assert messages(first, user("a"), last, user("b")) == [UserMessage("a"), UserMessage("old"), UserMessage("b")]


@pytest.mark.parametrize("compaction", [{"encrypted_content": "gAAAA"}, {"encrypted_content": None}, {}])
def test_a_compaction_of_others_is_skipped(compaction: dict[str, Any]) -> None:
    assert messages({"type": "compaction", **compaction}, user("Hi")) == [UserMessage("Hi")]


def test_what_is_no_item_is_refused() -> None:
    with pytest.raises(InvalidRequest) as raised:
        read_items(["Hi"])
    assert raised.value.param == "input[0]"
    with pytest.raises(InvalidRequest, match="The limit is 10,000 messages"):
        read_items([{}] * 50_001)


def test_tools_are_found_in_items() -> None:
    items = read_items(
        [
            {"type": "additional_tools", "tools": [{"type": "function", "name": "a"}, 7]},
            {"type": "tool_search_output", "tools": [{"type": "function", "name": "b"}]},
            {"type": "additional_tools", "tools": None},
            user("Hi"),
        ]
    )
    assert [(param, tool["name"]) for param, tool in declared_tools(items)] == [
        ("input[0].tools[0]", "a"),
        ("input[1].tools[0]", "b"),
    ]


def test_a_compaction_may_stand_for_a_response() -> None:
    def compaction(*items: Any) -> dict[str, Any]:
        return {"type": "compaction", "encrypted_content": pack(items)}

    assert (
        compacted_response(read_items([compaction({"type": "previous_response", "id": "resp_1"}), user("Hi")]))
        == "resp_1"
    )
    assert compacted_response(read_items([compaction({"type": "previous_response", "id": 7}), user("Hi")])) is None


def test_our_own_items_at_the_end_are_those_of_a_retry() -> None:
    reasoning = {"type": "reasoning", "id": item_id("rs", RUN, 0, 0), "summary": []}
    items = read_items([user("Hi"), reasoning, said("Hello", 1), called("c1", 2)])
    kept, known = without_retried(items)
    assert [placed.item for placed in kept] == [user("Hi")]
    assert known == {item_id("rs", RUN, 0, 0), item_id("msg", RUN, 0, 1), item_id("fc", RUN, 0, 2)}


@pytest.mark.parametrize(
    "last", [user("More"), gave("c1"), {"role": "assistant", "content": "foreign"}, {"type": "reasoning", "id": "rs_1"}]
)
def test_anything_else_at_the_end_is_no_retry(last: dict[str, Any]) -> None:
    items = read_items([user("Hi"), said("Hello", 1), last])
    assert without_retried(items) == (items, frozenset())


# --- messages ---------------------------------------------------------------------------------------


def test_roles() -> None:
    assert messages(
        {"role": "developer", "content": "a"},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "b"}]},
        user([{"type": "input_text", "text": "c"}, {"type": "text", "text": "d"}, {"type": "new"}, 7]),
        {"role": "assistant", "content": [{"type": "output_text", "text": "e"}, {"type": "refusal", "refusal": "f"}]},
        user(None),
    ) == [Instructions("a"), Instructions("b"), UserMessage("c\nd"), AssistantMessage("ef"), UserMessage("")]
    with pytest.raises(InvalidRequest) as raised:
        read(user("Hi"), {"role": "tool", "content": "x"})
    assert raised.value.param == "input[1].role"


def test_the_items_of_one_answer_are_one_message() -> None:
    shown = {"type": "mcp_call", "id": item_id("mcp", RUN, 0, 1), "name": "read_file"}
    comment = said("Ran `ls`", 2, phase="commentary")
    assert messages(user("Hi"), said("I look. ", 0), shown, comment, said("Done.", 3), user("Thanks")) == [
        UserMessage("Hi"),
        AssistantMessage("I look. Done."),
        UserMessage("Thanks"),
    ]


def test_answers_of_others_are_paragraphs() -> None:
    foreign = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b", "phase": "commentary"}]
    assert messages(user("Hi"), *foreign)[1] == AssistantMessage("a\n\nb")


def test_calls_of_one_reply_stay_together_whatever_order_they_come_back_in() -> None:
    second = ToolCall("c2", "weather", "{}")
    assert messages(user("Hi"), called("c1", 0), gave("c1"), called("c2", 1), gave("c2")) == [
        UserMessage("Hi"),
        AssistantMessage("", (WEATHER, second)),
        ToolMessage("sunny", "c1", "weather"),
        ToolMessage("sunny", "c2", "weather"),
    ]
    one_by_one = messages(user("Hi"), called("c1"), gave("c1"), called("c2"), gave("c2"))
    assert [type(message) for message in one_by_one][1:] == [AssistantMessage, ToolMessage] * 2


def test_custom_and_namespaced_calls_have_the_names_that_the_agent_knows() -> None:
    custom = {"type": "custom_tool_call", "call_id": "c1", "name": "add", "namespace": "notes", "input": "x"}
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "ok"}]}
    assert messages(user("Hi"), custom, output)[1:] == [
        AssistantMessage("", (ToolCall("c1", "notes__add", '{"input":"x"}'),)),
        ToolMessage("ok", "c1", "notes__add"),
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
        {"type": "item_reference", "id": "rs_1"},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "configuration_update"},
        {"type": "something_new", "content": "x"},
        {"type": 7},
        {},
    ],
)
def test_other_items_are_skipped(item: dict[str, Any]) -> None:
    assert messages(item, user("Hi")) == [UserMessage("Hi")]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"role": "user", "content": 7}, "input[0].content"),
        ({"type": "function_call", "call_id": "c"}, "input[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0]"),
        ({"type": "function_call_output", "call_id": "c", "output": {}}, "input[0].output"),
    ],
)
def test_a_wrong_item_names_its_place(item: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read(item)
    assert raised.value.param == param


def test_thinking_that_is_sent_back_as_text_is_skipped() -> None:
    thought = {"role": "assistant", "content": "<think>\nHm.\n</think>"}
    answer = {"role": "assistant", "content": "I <think> so."}
    assert messages(user("Hi"), thought, answer) == [UserMessage("Hi"), AssistantMessage("I <think> so.")]


def reference(prefix: Prefix, index: int, after: int = 0) -> dict[str, Any]:
    return {"type": "item_reference", "id": item_id(prefix, RUN, after, index)}


def test_answers_can_be_referred_to() -> None:
    """By the id of any of their messages; other items have no text. The calls are sent with them, without ids."""
    first = [reference("rs", 0), reference("msg", 1), reference("mcp", 2), reference("msg", 3), called("c1")]
    conversation = read(user("Hi"), *first, gave("c1"), reference("msg", 0, after=7), user("And?"))
    assert conversation.messages == (
        UserMessage("Hi"),
        AssistantMessage("", (WEATHER,)),
        ToolMessage("sunny", "c1", "weather"),
        AssistantMessage(""),
        UserMessage("And?"),
    )
    assert conversation.references == {1: AnswerId(RUN, 0), 3: AnswerId(RUN, 7)}


def test_calls_can_be_referred_to() -> None:
    first = {"id": reference("fc", 1)["id"]}  # the type is optional
    for call in (first, {**first, "type": None}, reference("ctc", 2)):
        conversation = read(user("Hi"), reference("rs", 0), call, gave("c1"))
        assert [type(message) for message in conversation.messages] == [UserMessage, AssistantMessage, ToolMessage]
        assert conversation.references == {1: AnswerId(RUN, 0)}


@pytest.mark.parametrize("items", [[], [user("")], [user("  \n")], [{"type": "item_reference", "id": "x"}]])
def test_there_must_be_something_to_answer(items: list[Any]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read_conversation(read_items(items), "Be brief.", FORMS, 0)
    assert raised.value.param == "input"


def test_a_result_may_be_empty() -> None:
    assert messages(gave("c1", "")) == [ToolMessage("", "c1")]
    assert messages(called("c1")) == [AssistantMessage("", (WEATHER,))]


# --- images and files -------------------------------------------------------------------------------


def test_images_belong_to_their_messages() -> None:
    image = {"type": "input_image", "image_url": PNG, "detail": "auto"}
    found = read({"role": "developer", "content": "x"}, user([image]), called("c1"), gave("c1", [image]))
    assert [image.message for image in found.images] == [1, 3]
    assert found.messages[1] == UserMessage("", (found.images[0].name,))


@pytest.mark.parametrize("role", ["assistant", "developer"])
def test_images_elsewhere_are_refused(role: str) -> None:
    with pytest.raises(InvalidRequest, match="only allowed in user messages"):
        read({"role": role, "content": [{"type": "input_image", "image_url": PNG}]})


def test_too_many_images_are_refused_before_they_are_read() -> None:
    with pytest.raises(InvalidRequest, match="the limit is 1"):
        read(user([{"type": "input_image", "image_url": "x"}] * 2), max_images=1)


def test_files_of_text_are_text() -> None:
    data = base64.b64encode("Grüße".encode()).decode()
    assert messages(user([{"type": "input_file", "file_data": data}])) == [UserMessage("Grüße")]
    named = {"type": "input_file", "file_data": f"data:text/plain;base64,{data}", "filename": "a.txt"}
    assert messages(user([named])) == [UserMessage("File a.txt:\n\nGrüße")]
    assert len(read(user([{"type": "input_file", "file_data": PNG}])).images) == 1


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "input_image", "file_id": "file-1"}, "input[0].content[0].file_id"),
        ({"type": "input_image", "image_url": "https://a.example/x.png"}, "input[0].content[0].image_url"),
        ({"type": "input_file", "file_id": "file-1"}, "input[0].content[0].file_id"),
        ({"type": "input_file", "file_url": "https://a.example"}, "input[0].content[0]"),
        ({"type": "input_file", "file_data": "data:application/pdf;base64,/w=="}, "input[0].content[0].file_data"),
    ],
)
def test_files_that_are_not_here_are_refused(part: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        read(user([part]))
    assert raised.value.param == param


def test_an_item_tells_whose_it_is() -> None:
    assert Placed({"id": 7}, "input").answer is None
    assert Placed({"id": "msg_1"}, "input").answer is None
