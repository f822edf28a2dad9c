"""The agent asks a question and writes no text: the reply is the question, and the next turn answers it."""

import httpx2
import pytest

from tests.anthropic_shapes import Message, Text, events_of, fold, read_message
from tests.gateways import RunningGateway
from tests.openai_shapes import read_stream, validate_completion
from tests.responses_shapes import Message as MessageItem
from tests.responses_shapes import read_response
from tests.responses_shapes import read_stream as read_response_stream
from tests.server.conftest import Json, invocation, option, standin, unique

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def body_of(dialect: str, messages: list[Json], *, stream: bool) -> Json:
    match dialect:
        case "responses":
            return {"model": "auto", "input": messages, "stream": stream}
        case "messages":
            return {"model": "auto", "max_tokens": 32_000, "messages": messages, "stream": stream}
        case _:
            return {"model": "auto", "messages": messages, "stream": stream}


def text_in(dialect: str, reply: httpx2.Response, *, stream: bool) -> str:
    """All of it, as a client shows it."""
    assert reply.status_code == 200, reply.text
    match dialect:
        case "responses":
            response = read_response_stream(reply.content) if stream else read_response(reply.content)
            items = [item for item in response.output if isinstance(item, MessageItem)]
            return "".join(part.text for item in items for part in item.content)
        case "messages":
            message = fold(events_of(reply.content)) if stream else read_message(reply.content)
            assert isinstance(message, Message)
            return "".join(block.text for block in message.content if isinstance(block, Text))
        case _:
            if stream:
                return read_stream(reply.content).text
            return validate_completion(reply.content).choices[0].message.content or ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", PATHS)
def test_an_open_question_is_text_and_the_next_turn_answers_it(
    gateway: RunningGateway, http: httpx2.Client, dialect: str, stream: bool
) -> None:
    first, second = unique(), unique()
    messages: list[Json] = [{"role": "user", "content": f"{first} {standin('question then=end')}"}]
    text = text_in(dialect, http.post(PATHS[dialect], json=body_of(dialect, messages, stream=stream)), stream=stream)
    assert text == "▸\u2063 Which file is meant?\n- notes.txt\n- other.txt"
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"{second} notes.txt"}]
    assert http.post(PATHS[dialect], json=body_of(dialect, messages, stream=stream)).status_code == 200
    assert option(invocation(gateway, second)["argv"], "--resume") == invocation(gateway, first)["session"]


@pytest.mark.parametrize("dialect", PATHS)
def test_a_question_that_the_agent_repeats_is_not_repeated_again(http: httpx2.Client, dialect: str) -> None:
    messages: list[Json] = [{"role": "user", "content": standin("question")}]
    text = text_in(dialect, http.post(PATHS[dialect], json=body_of(dialect, messages, stream=False)), stream=False)
    assert text == "I need to know more.Which file is meant: `notes.txt` or `other.txt`?"
