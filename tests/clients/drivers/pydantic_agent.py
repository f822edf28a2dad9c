"""Pydantic AI: an agent with a tool, whole or streaming; or one whose answer is a value, for which it demands calls."""

from collections.abc import AsyncIterable

from pydantic import BaseModel
from pydantic_ai import Agent, AgentStreamEvent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.drivers.weather import answer, asked, get_weather


class Report(BaseModel):
    city: str
    weather: str


async def read_all(_: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
    async for _event in events:
        pass


def main() -> None:
    question = asked()
    model = OpenAIChatModel("auto", provider=OpenAIProvider(base_url=question["url"], api_key="any"))
    match question["way"]:
        case "structured":
            reporter = Agent(model, tools=[get_weather], output_type=Report)
            answer(reporter.run_sync(question["prompt"]).output.model_dump_json())
        case "stream":
            # Not `run_stream`: it takes the first text for the answer, even where a call follows.
            answer(Agent(model, tools=[get_weather]).run_sync(question["prompt"], event_stream_handler=read_all).output)
        case _:
            answer(Agent(model, tools=[get_weather]).run_sync(question["prompt"]).output)


if __name__ == "__main__":
    main()
