"""The anthropic client, in the loop that its documentation shows."""

from typing import Any

from anthropic import Anthropic

from tests.clients.drivers.weather import Question, get_weather, serve

OPTIONS: dict[str, Any] = {
    "model": "auto",
    "max_tokens": 4096,
    "tools": [
        {
            "name": "get_weather",
            "description": "The weather in a city.",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        }
    ],
}


def replied(client: Anthropic, messages: list[Any], *, streams: bool) -> Any:
    if not streams:
        return client.messages.create(messages=messages, **OPTIONS)
    with client.messages.stream(messages=messages, **OPTIONS) as stream:
        return stream.get_final_message()


def ask(question: Question) -> str:
    client = Anthropic(base_url=question["url"].removesuffix("/v1"), api_key="any", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": question["prompt"]}]
    while True:
        message = replied(client, messages, streams=question["way"] == "stream")
        if message.stop_reason != "tool_use":
            return "".join(block.text for block in message.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": get_weather(**block.input)}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


if __name__ == "__main__":
    serve(ask)
