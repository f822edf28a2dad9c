"""Answers in the form that the request asks for: checked before they are shown, with one more try for the agent."""

import json
from typing import Any

import httpx2
import openai as sdk
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

from tests.gateways import RunningGateway
from tests.openai_shapes import read_stream, validate_completion, validate_error
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
OBJECT: dict[str, Any] = {"type": "json_object"}
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
def test_the_json_is_taken_out_of_what_stands_around_it(http: httpx2.Client, stream: bool) -> None:
    value = PLAN.model_dump_json()
    said = f"Here you are:\n\n```json\n{value}\n```\n\nAnything else?"
    reply = ask(http, "openai", standin("say", said), stream=stream, response_format=SCHEMA)
    assert _text(reply, stream) == value


@pytest.mark.parametrize("stream", [False, True])
def test_any_object(http: httpx2.Client, stream: bool) -> None:
    value = '{"a": [1, 2.50, null], "é": "\\u2028"}'
    reply = ask(http, "openai", standin("json", value), stream=stream, response_format=OBJECT)
    assert _text(reply, stream) == value  # as it was written, not written anew


def _text(reply: httpx2.Response, stream: bool) -> str | None:
    if stream:
        return read_stream(reply.content).text
    return validate_completion(reply.content).choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("value", ["no JSON at all", '{"title": "Cake"}', '{"title": 7, "steps": []}'])
def test_an_answer_that_never_fits_is_an_error(http: httpx2.Client, value: str, stream: bool) -> None:
    reply = ask(http, "openai", standin("say", value), stream=stream, response_format=SCHEMA)
    assert reply.status_code == 424
    error = validate_error(reply.content)
    assert (error.code, error.param) == ("answer_unfit", "response_format")
    assert "Rephrase the request" in error.message


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_that_fails_is_not_asked_again(gateway: RunningGateway, http: httpx2.Client, stream: bool) -> None:
    mark = unique()
    reply = ask(http, "openai", f"{mark} {standin('fail-quota')}", stream=stream, response_format=SCHEMA)
    assert (reply.status_code, validate_error(reply.content).code) == (402, "insufficient_quota")
    invocation(gateway, mark)


def test_what_max_tokens_cuts_off_says_so(openai: OpenAI) -> None:
    """As with OpenAI: the finish reason is `length`, and the client raises its own error for it."""
    with pytest.raises(sdk.LengthFinishReasonError):
        openai.chat.completions.parse(
            model="auto", messages=prompt("json", PLAN), response_format=Plan, max_completion_tokens=3
        )


def test_a_schema_that_is_none_is_refused(openai: OpenAI) -> None:
    wrong: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "oops"}}}
    with pytest.raises(sdk.BadRequestError) as caught:
        openai.chat.completions.create(model="auto", messages=prompt("json", "{}"), response_format=wrong)
    assert caught.value.param == "response_format.json_schema.schema"


def test_plain_text_is_no_form(openai: OpenAI) -> None:
    completion = openai.chat.completions.create(
        model="auto", messages=[{"role": "user", "content": "hello"}], response_format={"type": "text"}
    )
    assert completion.choices[0].message.content == "You said: hello"
