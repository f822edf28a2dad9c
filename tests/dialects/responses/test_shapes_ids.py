"""Ids of responses and items."""

import pytest

from cursor_gateway.dialects.responses.shapes import ItemId, answer_id, item_id, read_item_id, response_id
from cursor_gateway.model.answers import AnswerId

RUN = f"chat_{'0a' * 16}"


@pytest.mark.parametrize("after", [0, 17])
def test_an_id_tells_its_run_and_reply(after: int) -> None:
    assert answer_id(response_id(RUN, after)) == AnswerId(RUN, after)
    assert read_item_id(item_id("msg", RUN, after, 3)) == ItemId(AnswerId(RUN, after), 3)


@pytest.mark.parametrize("id", ["", "resp_", "chatcmpl-1", "resp_a b", "resp_1_x", "resp_1_2_3", "resp_1\n"])
def test_other_ids_are_no_responses(id: str) -> None:
    assert answer_id(id) is None


@pytest.mark.parametrize("id", ["", "msg_1", "msg_0123_0_0", f"xyz_{'0a' * 16}_0_0", "rs_68af2c"])
def test_other_items_are_not_ours(id: str) -> None:
    assert read_item_id(id) is None
