"""Answers in the form that the request asks for: checked before they are shown, with one more try for the agent."""

import json
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

from tests.gateways import RunningGateway
from tests.openai_shapes import validate_error
from tests.server.conftest import ask, invocation, invocations, option, standin, unique


class Step(BaseModel):
    explanation: str
    minutes: int


class Plan(BaseModel):
    title: str
    steps: list[Step]


PLAN = Plan(
    title="Crème brûlée \u2028 🍮", steps=[Step(explanation="stir", minutes=5), Step(explanation="", minutes=0)]
)
SCHEMA: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {"name": "plan", "strict": True, "schema": Plan.model_json_schema()},
}


def prompt(scenario: str, value: object, mark: str = "") -> list[ChatCompletionMessageParam]:
    body = value.model_dump_json() if isinstance(value, BaseModel) else str(value)
    return [{"role": "user", "content": f"{mark} {standin(scenario, body)}"}]


def test_parse_gives_the_model(openai: OpenAI) -> None:
    completion = openai.chat.completions.parse(model="auto", messages=prompt("json", PLAN), response_format=Plan)
    assert completion.choices[0].message.parsed == PLAN


def test_parse_after_one_repair(gateway: RunningGateway, openai: OpenAI) -> None:
    """The agent is told why, in the same session, and its second answer is the reply; both are paid for."""
    mark = unique()
    messages = prompt("json-bad-then-good", PLAN, mark)
    completion = openai.chat.completions.parse(model="auto", messages=messages, response_format=Plan)
    assert completion.choices[0].message.parsed == PLAN
    first = invocation(gateway, mark)
    assert json.dumps("minutes") in first["prompt"]  # the schema
    (second,) = [line for line in invocations(gateway, "Your last answer cannot be used") if _resumes(line, first)]
    assert "There is no JSON in it." in second["prompt"]
    assert second["history"] == [{"prompt": first["prompt"], "answer": second["history"][0]["answer"]}]
    assert completion.usage is not None
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 2048
    assert completion.model_extra is not None
    both = completion.model_extra["cursor"]["usage"]
    assert both["prompt_tokens"] > 2 * 1000  # the stand-in counts at least 1000 for a turn
    assert both["prompt_tokens_details"]["cached_tokens"] == 2 * 2048


def _resumes(line: dict[str, Any], first: dict[str, Any]) -> bool:
    session: str = first["session"]
    return option(line["argv"], "--resume") == session


@pytest.mark.parametrize("scenario", ["json", "json-bad-then-good"])
def test_parse_as_a_stream(openai: OpenAI, scenario: str) -> None:
    with openai.chat.completions.stream(
        model="auto", messages=prompt(scenario, PLAN), response_format=Plan, stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == PLAN
    assert final.usage is not None
    assert final.usage.total_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("value", ["no JSON at all", '{"title": "Cake"}', '{"title": 7, "steps": []}'])
def test_an_answer_that_never_fits_is_an_error(http: httpx2.Client, value: str, stream: bool) -> None:
    reply = ask(http, "openai", standin("say", value), stream=stream, response_format=SCHEMA)
    assert reply.status_code == 424
    error = validate_error(reply.content)
    assert (error.code, error.param) == ("answer_unfit", "response_format")
    assert "Rephrase the request" in error.message


def test_plain_text_is_no_form(openai: OpenAI) -> None:
    completion = openai.chat.completions.create(
        model="auto", messages=[{"role": "user", "content": "hello"}], response_format={"type": "text"}
    )
    assert completion.choices[0].message.content == "You said: hello"
