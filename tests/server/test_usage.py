"""In the OpenAI dialect `usage` is the size of the conversation; the sum of all model calls is in a field of ours."""

import json
import re

import httpx2
import pytest

from tests.gateways import RunningGateway
from tests.openai_shapes import validate_stream
from tests.server.conftest import Dialect, Json, ask, read_reply, unique
from tests.server.test_caller_tools import program, say

FIGURES = "input=24000 cache_read=216000 output=900"


def reporting(prompt: str) -> str:
    return prompt.replace("standin: program", f"standin: program {FIGURES}")


def usage_of(result: Json) -> tuple[int, int]:
    usage = result["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def counted(stream: bytes) -> Json:
    """The chunk that has the usage."""
    chunk: Json = json.loads(stream.split(b"data: ")[-2].split(b"\nid: ")[0])
    assert chunk["choices"] == []
    return chunk


def ten_calls() -> str:
    reads: list[Json] = [{"native": "ls", "args": {"path": "."}}] * 9
    return reporting(f"{unique()} {program(*reads, say('all done'))}")


def test_a_run_of_ten_calls_has_all_output_and_the_context_of_the_last(
    gateway: RunningGateway, http: httpx2.Client
) -> None:
    response = ask(http, "openai", ten_calls())
    result: Json = response.json()
    assert result["choices"][0]["message"]["content"] == "all done"
    prompt, completion = usage_of(result)
    assert 24_000 < prompt + completion < 30_000
    assert completion == 900
    assert result["usage"]["estimated"] is True
    assert result["usage"]["prompt_tokens_details"]["cached_tokens"] == pytest.approx(prompt * 0.9, rel=0.05)
    assert result["cursor"]["usage"]["prompt_tokens"] == 240_000
    assert result["cursor"]["usage"]["completion_tokens"] == 900
    assert "estimated" not in result["cursor"]["usage"]
    # Whoever reads the same run later is told the same, and documents have the sum.
    id = response.headers["x-chat-id"]
    again = counted(http.get(f"/v1/chat/{id}/events", params={"dialect": "openai"}).content)
    assert (again["usage"], again["cursor"]) == (result["usage"], result["cursor"])
    documents = http.get(f"/v1/chat/{id}").json()["usage"]
    assert documents == {
        "promptTokens": 240_000,
        "completionTokens": 900,
        "totalTokens": 240_900,
        "cachedTokens": 216_000,
    }


def test_a_stream_tells_what_a_whole_answer_tells(http: httpx2.Client) -> None:
    prompt = ten_calls()
    whole = ask(http, "openai", prompt).json()
    body = ask(http, "openai", prompt, stream=True, stream_options={"include_usage": True}).content
    assert validate_stream(body, include_usage=True)
    assert counted(body)["usage"] == whole["usage"]
    assert counted(body)["cursor"] == whole["cursor"]


def output_tokens(body: bytes) -> list[int]:
    """Of every usage in the reply."""
    found = re.findall(rb'"(?:completion_tokens|output_tokens|completionTokens)": ?(\d+)', body)
    return [int(number) for number in found]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["openai", "responses", "messages", "documents"])
@pytest.mark.parametrize("figures", ["input=900 output=0", "input=900 output=44", ""])
def test_an_answer_with_text_has_output_tokens_in_every_api(
    http: httpx2.Client, dialect: Dialect, stream: bool, figures: str
) -> None:
    """Although the last model call wrote nothing, or the agent reports none."""
    look: list[Json] = [say("I look into the folder. "), {"native": "ls", "args": {"path": "."}}]
    prompt = f"{unique()} {program(*look)}".replace("standin: program", f"standin: program {figures}")
    fields: Json = {"stream_options": {"include_usage": True}} if dialect == "openai" and stream else {}
    response = ask(http, dialect, prompt, stream=stream, **fields)
    if fields:
        assert validate_stream(response.content, include_usage=True)
    else:
        assert "I look" in read_reply(response, dialect).text
    assert output_tokens(response.content)[-1] > 0
