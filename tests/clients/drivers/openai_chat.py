"""The openai client, in the loop that its documentation shows."""

import json
from typing import assert_never

from openai import OpenAI
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam, ChatCompletionToolParam

from tests.clients.drivers.weather import Question, get_weather, serve

TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def completed(client: OpenAI, messages: list[ChatCompletionMessageParam], *, streams: bool) -> ChatCompletionMessage:
    if not streams:
        return client.chat.completions.create(model="auto", messages=messages, tools=TOOLS).choices[0].message
    with client.chat.completions.stream(model="auto", messages=messages, tools=TOOLS) as stream:
        return stream.get_final_completion().choices[0].message


def ask(question: Question) -> str:
    client = OpenAI(base_url=question["url"], api_key="any", max_retries=0)
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question["prompt"]}]
    while True:
        message = completed(client, messages, streams=question["way"] == "stream")
        if not message.tool_calls:
            return message.content or ""
        messages.append(message.to_dict())  # type: ignore[arg-type] # as the documentation does
        for call in message.tool_calls:
            match call.type:
                case "function":
                    found = get_weather(**json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": found})
                case "custom":
                    raise AssertionError(call)
                case never:
                    assert_never(never)


if __name__ == "__main__":
    serve(ask)
