"""LangChain: a model with bound tools in a loop of our own, whole or streaming; or its own agent. Over two APIs."""

from functools import reduce
from operator import add

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

from tests.clients.drivers.weather import Question, get_weather, serve

TOOL = StructuredTool.from_function(get_weather)


def by_hand(model: BaseChatModel, prompt: str, *, streams: bool) -> AIMessage:
    bound = model.bind_tools([TOOL])
    messages: list[BaseMessage] = [HumanMessage(prompt)]
    while True:
        message = reduce(add, bound.stream(messages)) if streams else bound.invoke(messages)
        if not message.tool_calls:
            return message
        messages += [message, *(TOOL.invoke(call) for call in message.tool_calls)]


def ask(question: Question) -> str:
    form, _, api = question["way"].partition(" ")
    if api == "messages":
        url = question["url"].removesuffix("/v1")
        model = ChatAnthropic(base_url=url, api_key="any", model="auto", max_retries=0)
    else:
        model = ChatOpenAI(base_url=question["url"], api_key="any", model="auto", max_retries=0)
    if form == "agent":
        result = create_agent(model, tools=[TOOL]).invoke(
            {"messages": [HumanMessage(question["prompt"])]}, {"recursion_limit": 100}
        )
        return str(result["messages"][-1].text)
    return str(by_hand(model, question["prompt"], streams=form == "stream").text)


if __name__ == "__main__":
    serve(ask)
