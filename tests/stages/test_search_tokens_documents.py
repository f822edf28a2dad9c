"""Documents are found by their contents, commands, paths and titles, as far as there is room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.documents import ErrorMetadata, TextMetadata, ToolCallMetadata, ToolCallResult, make_document
from cursor_gateway.stages import search_tokens
from tests.store.making import EVERY_DOCUMENT, words_of


@pytest.mark.parametrize(
    "word",
    [
        "prose", "x = 1", "src/main.py", "y = 2", "src/new_name.py", "src/old_name.py", "gone.py", "grep", "needle",
        "lib/deep", "pytest -k login", "# The plan", "Mend it", "Step by step", "look closely", "Which one?", "The red",
        "It broke", "TOOL_ERROR", "sweep up", "Hm",
    ],
)  # fmt: skip
def test_every_kind_of_document_is_found_by_what_people_remember_of_it(word: str) -> None:
    assert word in "\n".join(words_of(EVERY_DOCUMENT).all)


def test_what_a_command_put_out_is_not_indexed() -> None:
    assert "a lot" not in "\n".join(words_of(EVERY_DOCUMENT).all)


def test_commands_come_before_contents() -> None:
    result = "\n".join(words_of(EVERY_DOCUMENT).all)
    assert result.index("pytest -k login") < result.index("Some prose")


@given(st.lists(st.tuples(st.text(max_size=9), st.text(min_size=1, max_size=9)), max_size=9))
def test_names_and_contents_have_room_of_their_own(texts: list[tuple[str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_tokens, "LONGEST_TEXT", 20)
        documents = [
            make_document(f"doc_{number}", number, content, ErrorMetadata(error_code=code, source="", details=""))
            for number, (content, code) in enumerate(texts)
        ]
        found = words_of(documents).all
    names, contents = "".join(code for _, code in texts), "".join(content for content, _ in texts)
    assert "".join(found) == names[:20] + contents[:20]


def test_the_arguments_of_a_call_are_searched_up_to_a_limit() -> None:
    arguments = {"many": [str(number) for number in range(6000)], "last": True}
    metadata = ToolCallMetadata(
        tool_name="t",
        tool_call_id="c",
        arguments=arguments,
        result=ToolCallResult(status="success", data=1),
        duration_ms=1,
    )
    found = words_of([make_document("doc_001", 1, None, metadata), make_document("doc_002", 2, "x", TextMetadata())])
    assert "4000" in found.all
    assert "5999" not in found.all
    assert found.tool_uses == 1
