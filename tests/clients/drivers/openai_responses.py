"""The openai client with the Responses API, in the loop that its documentation shows."""

import json

from openai import OpenAI
from openai.types.responses import Response, ResponseInputParam, ToolParam

from tests.clients.drivers.weather import Question, get_weather, serve

TOOLS: list[ToolParam] = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": False,
    }
]


def responded(client: OpenAI, items: ResponseInputParam, *, streams: bool) -> Response:
    if not streams:
        return client.responses.create(model="auto", input=items, tools=TOOLS)
    with client.responses.stream(model="auto", input=items, tools=TOOLS) as stream:
        return stream.get_final_response()


def ask(question: Question) -> str:
    client = OpenAI(base_url=question["url"], api_key="any", max_retries=0)
    items: ResponseInputParam = [{"role": "user", "content": question["prompt"]}]
    while True:
        response = responded(client, items, streams=question["way"] == "stream")
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        items += [item.to_dict() for item in response.output]  # type: ignore[misc] # as the documentation does
        for call in calls:
            found = get_weather(**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": found})


if __name__ == "__main__":
    serve(ask)
