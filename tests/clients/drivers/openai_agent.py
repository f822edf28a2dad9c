"""OpenAI's Agents SDK: an agent with a tool, over the Responses API, whole or streaming."""

import asyncio

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from tests.clients.drivers.weather import Question, get_weather, serve


async def run(question: Question) -> str:
    client = AsyncOpenAI(base_url=question["url"], api_key="any", max_retries=0)
    agent = Agent(name="Weather", model=OpenAIResponsesModel("auto", client), tools=[function_tool(get_weather)])
    if question["way"] == "whole":
        return str((await Runner.run(agent, question["prompt"], max_turns=20)).final_output)
    streamed = Runner.run_streamed(agent, question["prompt"], max_turns=20)
    async for _ in streamed.stream_events():
        pass
    return str(streamed.final_output)


if __name__ == "__main__":
    set_tracing_disabled(True)
    serve(lambda question: asyncio.run(run(question)))
