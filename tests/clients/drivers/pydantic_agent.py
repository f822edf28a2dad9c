"""Pydantic AI: an agent with a tool, whole or streaming; one whose answer is a value, for which it demands calls; or
one without tools in two turns.

Over each of the three APIs.
"""

from collections.abc import AsyncIterable

from pydantic import BaseModel
from pydantic_ai import Agent, AgentStreamEvent, RunContext
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.drivers.weather import Question, get_weather, serve


class Report(BaseModel):
    city: str
    weather: str


async def read_all(_: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
    async for _event in events:
        pass


def model_of(api: str, url: str) -> Model:
    match api:
        case "responses":
            return OpenAIResponsesModel("auto", provider=OpenAIProvider(base_url=url, api_key="any"))
        case "messages":
            return AnthropicModel("auto", provider=AnthropicProvider(base_url=url.removesuffix("/v1"), api_key="any"))
        case _:
            return OpenAIChatModel("auto", provider=OpenAIProvider(base_url=url, api_key="any"))


def ask(question: Question) -> str:
    form, _, api = question["way"].partition(" ")
    model = model_of(api, question["url"])
    match form:
        case "structured":
            reporter = Agent(model, tools=[get_weather], output_type=Report)
            return str(reporter.run_sync(question["prompt"]).output.model_dump_json())
        case "turns":
            first = Agent(model).run_sync(question["prompt"])
            again = f"{question['prompt'].splitlines()[0]} again"
            return str(Agent(model).run_sync(again, message_history=first.all_messages()).output)
        case "stream":
            # Not `run_stream`: it takes the first text for the answer, even where a call follows.
            agent = Agent(model, tools=[get_weather])
            return str(agent.run_sync(question["prompt"], event_stream_handler=read_all).output)
        case _:
            return str(Agent(model, tools=[get_weather]).run_sync(question["prompt"]).output)


if __name__ == "__main__":
    serve(ask)
