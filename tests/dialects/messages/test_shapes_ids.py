"""Ids of messages lead back to their runs."""

import pytest

from cursor_gateway.dialects.messages.shapes import answer_id, message_id, server_tool_id
from cursor_gateway.model.answers import AnswerId


@pytest.mark.parametrize("after", [0, 7])
def test_a_messages_id_leads_to_its_run(after: int) -> None:
    id = message_id("chat_0a1b", after)
    assert id == ("msg_0a1b-7" if after else "msg_0a1b")
    assert answer_id(id) == AnswerId("chat_0a1b", after)


@pytest.mark.parametrize("id", ["chat_0a1b", "msg_", "msg_0a1b-x", "msg_0a1b-", "msg_0a1b-²", "chatcmpl-0a1b"])
def test_other_ids_lead_nowhere(id: str) -> None:
    assert answer_id(id) is None


def test_server_tools_are_numbered_in_letters_that_anthropic_accepts() -> None:
    assert server_tool_id("chat_0a1b", 2) == "srvtoolu_0a1b_2"
