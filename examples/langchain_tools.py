"""A LangChain agent whose model is Cursor's agent, with a tool that runs here.

When the agent calls the tool, the run pauses, LangChain runs the tool, and the same run continues. Needs the packages
`langchain` and `langchain-openai`.
"""

import os
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def temperature(city: str) -> str:
    """The temperature in a city, in °C."""
    print(f"(looking up {city})")
    return {"Paris": "21", "Oslo": "9"}.get(city, "unknown")


def main() -> None:
    url = os.environ.get("CURSOR_GATEWAY_URL", "http://127.0.0.1:8787")
    model = ChatOpenAI(base_url=f"{url}/v1", api_key=os.environ.get("CURSOR_GATEWAY_API_KEY", "any"), model="auto")
    agent = create_agent(model, tools=[temperature])
    answer = agent.invoke({"messages": [{"role": "user", "content": " ".join(sys.argv[1:])}]})
    print(answer["messages"][-1].text)


if __name__ == "__main__":
    main()
